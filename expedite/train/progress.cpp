#include "expedite/train/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace expedite::train {
namespace {

/// 950, 41.2k, 1.3M.
std::string format_rate(double rate) {
  constexpr double kThousand = 1e3;
  constexpr double kMillion = 1e6;
  if (rate >= kMillion) {
    return fmt::format("{:.1f}M", rate / kMillion);
  }
  return rate >= kThousand ? fmt::format("{:.1f}k", rate / kThousand) : fmt::format("{:.0f}", rate);
}

/// 45s, 2m05s, 3h07m.
std::string format_duration(double seconds) {
  constexpr double kMonth = 30.0 * 24 * 3600;
  if (!(seconds < kMonth)) {
    return "?";
  }
  const auto whole = static_cast<std::int64_t>(std::lround(std::max(seconds, 0.0)));
  if (whole >= 3600) {
    return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  }
  return whole >= 60 ? fmt::format("{}m{:02}s", whole / 60, whole % 60) : fmt::format("{}s", whole);
}

}  // namespace

std::string format_progress(const ProgressState& state) {
  std::string line = fmt::format("{} {}/{}  loss {:.3f}", state.what, state.step, state.steps, state.loss);
  if (state.validation_bits_per_byte) {
    line += fmt::format("  val {:.3f} bits/byte", *state.validation_bits_per_byte);
  }
  line += fmt::format("  {} tokens/s", format_rate(state.tokens_per_second));
  if (state.exposed_communication) {
    line += fmt::format("  exposed {:.1f}%", 100.0 * *state.exposed_communication);
  }
  if (state.seconds_left) {
    line += fmt::format("  left {}", format_duration(*state.seconds_left));
  }
  return line;
}

std::optional<int> terminal_width(std::FILE* stream) {
  constexpr int kUsualWidth = 80;
  const int descriptor = fileno(stream);
  if (descriptor < 0 || isatty(descriptor) == 0) {
    return std::nullopt;
  }
  const char* const kind = std::getenv("TERM");
  if (kind != nullptr && std::string_view(kind) == "dumb") {
    return std::nullopt;  // it cannot erase a line
  }
  winsize size = {};
  const bool known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualWidth;
}

Progress::Progress(std::FILE* stream) : Progress(stream, Options{.live_width = terminal_width(stream)}) {}

Progress::Progress(std::FILE* stream, Options options) : stream_(stream), options_(std::move(options)) {}

Progress::~Progress() {
  finish();
}

void Progress::update(const ProgressState& state) {
  const bool first = !last_;
  last_ = state;
  const auto interval = options_.live_width ? options_.live_interval : options_.plain_interval;
  if (first || state.step >= state.steps || options_.now() - shown_at_ >= interval) {
    show();
  } else {
    pending_ = true;
  }
}

void Progress::note(const std::string& line) {
  clear_line();
  fmt::print(stream_, "{}\n", line);
  if (options_.live_width && last_) {
    show();
  }
  std::fflush(stream_);
}

void Progress::finish() {
  if (pending_) {
    show();
  }
  if (on_screen_) {
    std::fputc('\n', stream_);
    on_screen_ = false;
  }
  std::fflush(stream_);
}

void Progress::show() {
  shown_at_ = options_.now();
  pending_ = false;
  std::string line = format_progress(*last_);
  if (!options_.live_width) {
    fmt::print(stream_, "{}\n", line);
  } else {
    // A line as wide as the terminal would wrap, and no longer be one line to redraw.
    line.resize(std::min(line.size(), static_cast<std::size_t>(std::max(*options_.live_width - 1, 1))));
    clear_line();
    std::fputs(line.c_str(), stream_);
    on_screen_ = true;
  }
  std::fflush(stream_);
}

void Progress::clear_line() {
  if (on_screen_) {
    constexpr const char* kReturnAndErase = "\r\x1b[K";
    std::fputs(kReturnAndErase, stream_);
    on_screen_ = false;
  }
}

}  // namespace expedite::train
