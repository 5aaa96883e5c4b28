// The progress line of a training run: redrawn in place on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace expedite::train {

struct ProgressState {
  std::string_view what = "step";  // a literal: the line's first word
  std::int64_t step = 0;           // done
  std::int64_t steps = 0;
  double loss = 0.0;
  std::optional<double> validation_bits_per_byte = {};
  double tokens_per_second = 0.0;
  std::optional<double> exposed_communication = {};  // fraction of a step's time, 0 to 1
  std::optional<double> seconds_left = {};
};

/// "step 120/1000  loss 2.134  val 2.871 bits/byte  41.2k tokens/s  exposed 3.1%  left 2m05s".
[[nodiscard]] std::string format_progress(const ProgressState& state);

/// The width of the terminal that `stream` is, or nothing when it is not one.
/// Ask where the user's terminal is: mpirun gives its ranks pseudo-terminals or pipes whatever its own output
/// is, so whoever starts mpirun asks, and tells the ranks on their command line.
[[nodiscard]] std::optional<int> terminal_width(std::FILE* stream);

class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    std::optional<int> live_width = {};                // columns of the terminal; nothing: plain lines
    std::chrono::milliseconds live_interval{100};      // at most one redraw, and
    std::chrono::milliseconds plain_interval{10'000};  // at most one line, in this time
    std::function<Clock::time_point()> now = Clock::now;
  };

  explicit Progress(std::FILE* stream);  // live when `stream` is a terminal
  Progress(std::FILE* stream, Options options);
  ~Progress();  // as finish()
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows the state, unless the last one shown is too recent. The first and the last step are always shown.
  void update(const ProgressState& state);
  /// Prints a line of its own, above the live line.
  void note(const std::string& line);
  /// Shows the last state if it was held back, and leaves the cursor on a new line. Further calls do nothing.
  void finish();

 private:
  void show();
  void clear_line();

  std::FILE* stream_;
  Options options_;
  std::optional<ProgressState> last_;
  Clock::time_point shown_at_;
  bool pending_ = false;    // last_ was held back
  bool on_screen_ = false;  // a live line is where the cursor is
};

}  // namespace expedite::train
