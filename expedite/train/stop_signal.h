// A request to stop, by signal: the training loop asks for it between steps, then saves and returns.
#pragma once

#include <array>
#include <csignal>

namespace expedite::train {

/// Makes SIGUSR1 harmless from here to the end of the process: launch() repeats it, so that it comes before
/// and after a StopSignal's life too.
void ignore_repeated_stops();

/// While it lives, SIGINT, SIGTERM and SIGUSR1 (see launch()) only set a flag; a second SIGINT acts as usual,
/// so that an impatient user is not locked out. The destructor restores the handlers there were before. Only
/// one at a time; a second is an Error.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  [[nodiscard]] bool requested() const { return signal() != 0; }
  /// The first signal that came, or 0.
  [[nodiscard]] int signal() const;

 private:
  std::array<struct sigaction, 3> previous_ = {};
};

}  // namespace expedite::train
