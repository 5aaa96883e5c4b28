#include "expedite/runtime/status.h"

#include <fmt/format.h>

namespace expedite::runtime {

std::string to_string(const StreamStatus& status) {
  const std::string_view stream = name_of(status.stream);
  const std::string group = status.group.empty() ? "" : fmt::format(" (group {})", status.group);
  switch (status.activity) {
    case Activity::idle:
      return fmt::format("{}: idle", stream);
    case Activity::running:
      return fmt::format("{}: {}, running for {:.1f} s", stream, status.task, status.seconds);
    case Activity::in_flight:
      return fmt::format("{}: {}{}, in flight for {:.1f} s", stream, status.task, group, status.seconds);
    case Activity::waiting:
      if (status.waits_for.empty()) {
        return fmt::format("{}: about to start {}{}", stream, status.task, group);
      }
      return fmt::format("{}: waiting {:.1f} s for {} ({})", stream, status.seconds, status.waits_for,
                         status.waits_for_stream);
  }
  return std::string(stream);
}

std::string to_string(const Status& status) {
  std::string lines;
  for (const StreamStatus& stream : status) {
    if (stream.in_schedule) {
      lines += lines.empty() ? "" : "\n";
      lines += to_string(stream);
    }
  }
  return lines.empty() ? "no step is running" : lines;
}

}  // namespace expedite::runtime
