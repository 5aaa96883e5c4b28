// A request to stop, by signal: answered at once, and obeyed by the training loop between steps, which then
// saves and returns.
#pragma once

#include <array>
#include <csignal>
#include <string>

namespace expedite::train {

/// Makes SIGUSR1 harmless from here to the end of the process: launch() repeats it, so that it comes before
/// and after a StopSignal's life too.
void ignore_repeated_stops();

struct StopOptions {
  int rank = 0;
  int ranks = 1;
  std::string what = "the step under way ends and is saved";  // happens after a signal, for the answer
};

/// While it lives, the first SIGINT, SIGTERM or SIGUSR1 (see launch()) sets a flag and is answered with a
/// line on standard error; SIGUSR1, which every rank gets, by rank 0 alone. A second SIGINT or SIGTERM acts
/// as usual, so that an impatient user is not locked out. The destructor restores the handlers there were
/// before. Only one at a time; a second is an Error.
class StopSignal {
 public:
  explicit StopSignal(const StopOptions& options = {});
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  [[nodiscard]] bool requested() const { return signal() != 0; }
  /// The first signal that came, or 0.
  [[nodiscard]] int signal() const;

  /// From now on a signal, or from now the one that has come, leaves the loop so many seconds to come to
  /// wait_is_over(); then the process says so and exits with 1. 0: as long as it takes.
  void set_limit(unsigned seconds);
  /// What was waited for has come: no limit any more.
  void wait_is_over();

 private:
  std::array<struct sigaction, 4> previous_ = {};
};

}  // namespace expedite::train
