// What every stream of a rank does at one moment: what a user sees when a job hangs.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "expedite/schedule/schedule.h"

namespace expedite::runtime {

enum class Activity : std::uint8_t { idle, waiting, running, in_flight };

struct StreamStatus {
  schedule::Stream stream = schedule::Stream::compute;
  bool in_schedule = false;  // the running schedule has tasks on this stream
  Activity activity = Activity::idle;
  std::string task = {};              // its label: it runs, is in flight, or waits to start
  std::string group = {};             // of a communication task
  std::string waits_for = {};         // waiting: label of a task that must be done before, if any
  std::string waits_for_stream = {};  // that task's stream
  double seconds = 0;                 // in this activity so far
};

using Status = std::array<StreamStatus, schedule::kStreams>;

/// "compute: L3 mb0 experts forward, running for 12.1 s"
/// "intra: L3 mb0 dispatch forward (group ep), in flight for 30.2 s"
/// "compute: waiting 30.2 s for L3 mb0 dispatch forward (intra)"
/// "compute: about to start L3 mb0 experts forward"
/// "prefetch: idle"
[[nodiscard]] std::string to_string(const StreamStatus& status);
/// A line for each stream that the running schedule uses, or "no step is running".
[[nodiscard]] std::string to_string(const Status& status);

}  // namespace expedite::runtime
