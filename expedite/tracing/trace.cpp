#include "expedite/tracing/trace.h"

#include <algorithm>
#include <utility>

#include "expedite/base/error.h"

namespace expedite::tracing {

std::string label(const TraceEvent& event) {
  schedule::Task task;
  task.op = event.op;
  task.pass = event.pass;
  task.layer = event.layer;
  task.micro_batch = event.micro_batch;
  task.chunk = event.chunk;
  task.chunks = event.chunks;
  return schedule::label(task);
}

StepStatistics summarize(std::span<const TraceEvent> events, std::int64_t begin, std::int64_t end) {
  StepStatistics statistics;
  statistics.wall = end - begin;
  std::int64_t compute_end = begin;
  std::int64_t communication_end = begin;
  for (const TraceEvent& event : events) {
    const std::int64_t duration = event.end - event.begin;
    statistics.by_op[static_cast<std::size_t>(event.op)] += duration;
    if (event.stream == schedule::Stream::compute) {
      statistics.compute_busy += duration;
      statistics.exposed_communication += event.exposed;
      compute_end = std::max(compute_end, event.end);
    } else if (is_communication(event.stream)) {
      statistics.bytes += event.bytes;
      statistics.rows += event.rows;
      communication_end = std::max(communication_end, event.end);
    }
  }
  statistics.exposed_communication += std::max<std::int64_t>(communication_end - compute_end, 0);
  return statistics;
}

TraceRecorder::TraceRecorder(int kept_steps) : kept_steps_(static_cast<std::size_t>(kept_steps)) {
  require(kept_steps >= 1, "a trace of {} steps", kept_steps);
}

void TraceRecorder::begin_step(std::int64_t now) {
  const std::scoped_lock lock(mutex_);
  Step step;
  if (kept_.size() == kept_steps_) {
    step = std::move(kept_.front());  // its memory serves again
    kept_.pop_front();
    step.events.clear();
  }
  step.begin = now;
  kept_.push_back(std::move(step));
}

void TraceRecorder::record(const TraceEvent& event) {
  const std::scoped_lock lock(mutex_);
  require(!kept_.empty(), "a trace event outside any step");
  kept_.back().events.push_back(event);
}

void TraceRecorder::end_step(std::int64_t now) {
  const std::scoped_lock lock(mutex_);
  require(!kept_.empty(), "the end of a step that did not begin");
  latest_ = summarize(kept_.back().events, kept_.back().begin, now);
  latest_.step = steps_++;
}

StepStatistics TraceRecorder::statistics() const {
  const std::scoped_lock lock(mutex_);
  return latest_;
}

std::vector<TraceEvent> TraceRecorder::events() const {
  const std::scoped_lock lock(mutex_);
  std::vector<TraceEvent> all;
  for (const Step& step : kept_) {
    all.insert(all.end(), step.events.begin(), step.events.end());
  }
  return all;
}

}  // namespace expedite::tracing
