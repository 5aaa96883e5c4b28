// What ran when: events of a rank's tasks, and what a step's time was spent on.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "expedite/base/row_traffic.h"
#include "expedite/schedule/schedule.h"

namespace expedite::tracing {

/// One task's run. Times are nanoseconds of the executor's clock.
struct TraceEvent {
  schedule::Op op = schedule::Op::embedding;
  schedule::Pass pass = schedule::Pass::forward;
  schedule::Stream stream = schedule::Stream::compute;
  std::int32_t layer = -1;
  std::int32_t micro_batch = -1;
  std::int32_t chunk = -1;
  std::int32_t chunks = 1;  // from `chunk` on
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t wait = 0;     // compute: the stream was idle before the task, for whatever reason
  std::int64_t exposed = 0;  // compute: the part of `wait` that communication caused
  std::int64_t bytes = 0;    // communication: as PendingCommunication::bytes() says
  RowTraffic rows = {};      // likewise

  [[nodiscard]] bool operator==(const TraceEvent&) const = default;
};

/// As schedule::label.
[[nodiscard]] std::string label(const TraceEvent& event);

/// Where one step's wall time went, in nanoseconds.
struct StepStatistics {
  std::int64_t step = 0;
  std::int64_t wall = 0;
  std::int64_t compute_busy = 0;
  /// The compute stream had nothing to run because communication was not done: between its tasks, and after
  /// the last one until the last communication.
  std::int64_t exposed_communication = 0;
  std::int64_t bytes = 0;                            // of all communication
  RowTraffic rows;                                   // likewise
  std::array<std::int64_t, schedule::kOps> by_op{};  // running, or in flight
};
[[nodiscard]] StepStatistics summarize(std::span<const TraceEvent> events, std::int64_t begin,
                                       std::int64_t end);

/// Events of the latest steps, and statistics of each. Thread-safe; an event costs a lock and a copy.
class TraceRecorder {
 public:
  /// Keeps the events of the last `kept_steps` steps, at least one.
  explicit TraceRecorder(int kept_steps = 8);

  /// A step is what one Executor::run() does; the executor calls these three.
  void begin_step(std::int64_t now);
  void record(const TraceEvent& event);
  void end_step(std::int64_t now);

  /// Of the latest complete step; StepStatistics::step counts from 0.
  [[nodiscard]] StepStatistics statistics() const;
  /// Of the kept steps, oldest step first, within a step in the order they ended.
  [[nodiscard]] std::vector<TraceEvent> events() const;

 private:
  struct Step {
    std::int64_t begin = 0;
    std::vector<TraceEvent> events = {};
  };

  mutable std::mutex mutex_;
  std::size_t kept_steps_;
  std::int64_t steps_ = 0;
  std::deque<Step> kept_;
  StepStatistics latest_;
};

}  // namespace expedite::tracing
