// The state of one run of a schedule: which tasks are done, which run, which wait for what.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "expedite/runtime/status.h"
#include "expedite/schedule/schedule.h"
#include "expedite/tracing/trace.h"

namespace expedite::runtime {

/// Not thread-safe: the executor guards it. Times are nanoseconds of the executor's clock.
class Step {
 public:
  /// An Error if a task names a task, buffer or group that does not exist.
  Step(const schedule::Schedule& schedule, std::int64_t now);

  [[nodiscard]] const schedule::Schedule& schedule() const { return schedule_; }
  [[nodiscard]] const schedule::Task& task(schedule::TaskId id) const {
    return schedule_.tasks[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] bool finished() const { return remaining_ == 0; }
  [[nodiscard]] bool has_tasks(schedule::Stream stream) const { return !at(stream).queue.empty(); }

  /// The next task of a stream that has none running; -1 at the end of the stream.
  [[nodiscard]] schedule::TaskId head(schedule::Stream stream) const;
  /// Whether there is a next task and everything it waits for is done.
  [[nodiscard]] bool head_ready(schedule::Stream stream) const;
  [[nodiscard]] bool running(schedule::Stream stream) const { return at(stream).running; }
  /// When the running task started.
  [[nodiscard]] std::int64_t begun(schedule::Stream stream) const { return at(stream).since; }
  /// No task runs and none can start: the dependencies go round in a circle.
  [[nodiscard]] bool stuck() const;
  /// Of a step that is stuck: what is left, and what the next task of each stream waits for.
  [[nodiscard]] std::string describe_waits() const;

  /// The head of the stream starts.
  void begin(schedule::Stream stream, std::int64_t now);
  /// The running task of the stream is done.
  tracing::TraceEvent end(schedule::Stream stream, std::int64_t now, std::int64_t bytes,
                          const RowTraffic& rows = {});

  [[nodiscard]] Status status(std::int64_t now) const;

 private:
  struct StreamState {
    std::vector<schedule::TaskId> queue;
    std::size_t next = 0;  // index of the head, or of the running task
    bool running = false;
    std::int64_t since = 0;    // the running task's begin, or the last one's end
    std::int64_t wait = 0;     // idle time before the running task
    std::int64_t exposed = 0;  // the part that communication caused
  };

  [[nodiscard]] const StreamState& at(schedule::Stream stream) const {
    return streams_[static_cast<std::size_t>(stream)];
  }
  [[nodiscard]] StreamState& at(schedule::Stream stream) {
    return streams_[static_cast<std::size_t>(stream)];
  }
  [[nodiscard]] bool done(schedule::TaskId id) const { return end_[static_cast<std::size_t>(id)] >= 0; }
  void check_ids() const;
  [[nodiscard]] std::int64_t exposed_wait(schedule::TaskId id, std::int64_t idle_since,
                                          std::int64_t now) const;
  [[nodiscard]] StreamStatus status(schedule::Stream stream, std::int64_t now) const;

  const schedule::Schedule& schedule_;
  std::array<StreamState, schedule::kStreams> streams_;
  std::vector<std::int64_t> end_;  // by task: when it was done; -1 before
  std::size_t remaining_;
};

}  // namespace expedite::runtime
