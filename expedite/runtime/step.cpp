#include "expedite/runtime/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "expedite/base/error.h"

namespace expedite::runtime {

using schedule::Stream;
using schedule::TaskId;

Step::Step(const schedule::Schedule& schedule, std::int64_t now)
    : schedule_(schedule), end_(schedule.tasks.size(), -1), remaining_(schedule.tasks.size()) {
  check_ids();
  for (StreamState& stream : streams_) {
    stream.since = now;
  }
  for (std::size_t id = 0; id < schedule.tasks.size(); ++id) {
    at(schedule.tasks[id].stream).queue.push_back(static_cast<TaskId>(id));
  }
}

void Step::check_ids() const {
  const auto exists = [](auto id, const auto& list) {
    return id >= 0 && static_cast<std::size_t>(id) < list.size();
  };
  for (const schedule::Task& task : schedule_.tasks) {
    bool sound = static_cast<int>(task.stream) < schedule::kStreams;
    for (const TaskId earlier : task.after) {
      sound = sound && exists(earlier, schedule_.tasks);
    }
    for (const auto* list : {&task.acquires, &task.uses, &task.releases}) {
      for (const schedule::BufferId buffer : *list) {
        sound = sound && exists(buffer, schedule_.buffers);
      }
    }
    sound = sound && (!task.communication || exists(task.communication->group, schedule_.groups));
    require(sound,
            "{} names a stream, task, buffer or group that its schedule does not have; verify it first",
            label(task));
  }
}

TaskId Step::head(Stream stream) const {
  const StreamState& state = at(stream);
  return state.running || state.next == state.queue.size() ? -1 : state.queue[state.next];
}

bool Step::head_ready(Stream stream) const {
  const TaskId id = head(stream);
  return id >= 0 && std::all_of(task(id).after.begin(), task(id).after.end(),
                                [this](TaskId earlier) { return done(earlier); });
}

bool Step::stuck() const {
  if (finished()) {
    return false;
  }
  for (int i = 0; i < schedule::kStreams; ++i) {
    const auto stream = static_cast<Stream>(i);
    if (running(stream) || head_ready(stream)) {
      return false;
    }
  }
  return true;
}

std::string Step::describe_waits() const {
  const auto name = [this](TaskId id) { return fmt::format("task {} '{}'", id, label(task(id))); };
  std::string text = fmt::format(
      "no task runs and none can start, with {} of {} tasks left: the schedule's dependencies go round in a "
      "circle; verify it first",
      remaining_, schedule_.tasks.size());
  for (int i = 0; i < schedule::kStreams; ++i) {
    const auto stream = static_cast<Stream>(i);
    const TaskId next = head(stream);
    if (next < 0) {
      continue;
    }
    text += fmt::format("\n{}: {} waits for", name_of(stream), name(next));
    std::string_view separator = " ";
    for (const TaskId earlier : task(next).after) {
      if (!done(earlier)) {
        text += fmt::format("{}{} ({})", separator, name(earlier), name_of(task(earlier).stream));
        separator = ", ";
      }
    }
  }
  return text;
}

void Step::begin(Stream stream, std::int64_t now) {
  StreamState& state = at(stream);
  const TaskId id = state.queue[state.next];
  state.wait = now - state.since;
  state.exposed = stream == Stream::compute ? exposed_wait(id, state.since, now) : 0;
  state.running = true;
  state.since = now;
}

// Idle until `now`, when the last dependency was done and the thread awake: all of it is communication's if
// that came last, else until the last communication's end.
std::int64_t Step::exposed_wait(TaskId id, std::int64_t idle_since, std::int64_t now) const {
  std::int64_t communication_end = idle_since;
  std::int64_t last_end = idle_since;
  for (const TaskId earlier : task(id).after) {
    const std::int64_t end = end_[static_cast<std::size_t>(earlier)];
    last_end = std::max(last_end, end);
    if (is_communication(task(earlier).stream)) {
      communication_end = std::max(communication_end, end);
    }
  }
  if (communication_end == idle_since) {
    return 0;
  }
  return (communication_end == last_end ? now : communication_end) - idle_since;
}

tracing::TraceEvent Step::end(Stream stream, std::int64_t now, std::int64_t bytes, const RowTraffic& rows) {
  StreamState& state = at(stream);
  const TaskId id = state.queue[state.next];
  const schedule::Task& ended = task(id);
  const tracing::TraceEvent event{.op = ended.op,
                                  .pass = ended.pass,
                                  .stream = stream,
                                  .layer = ended.layer,
                                  .micro_batch = ended.micro_batch,
                                  .chunk = ended.chunk,
                                  .chunks = ended.chunks,
                                  .begin = state.since,
                                  .end = now,
                                  .wait = stream == Stream::compute ? state.wait : 0,
                                  .exposed = state.exposed,
                                  .bytes = bytes,
                                  .rows = rows};
  end_[static_cast<std::size_t>(id)] = std::max<std::int64_t>(now, 0);
  state.running = false;
  state.since = now;
  ++state.next;
  --remaining_;
  return event;
}

StreamStatus Step::status(Stream stream, std::int64_t now) const {
  const StreamState& state = at(stream);
  StreamStatus status{.stream = stream, .in_schedule = !state.queue.empty()};
  status.seconds = static_cast<double>(now - state.since) * 1e-9;
  if (state.next == state.queue.size()) {
    return status;
  }
  const schedule::Task& current = task(state.queue[state.next]);
  status.task = label(current);
  if (current.communication) {
    status.group = schedule_.groups[static_cast<std::size_t>(current.communication->group)].name;
  }
  if (state.running) {
    status.activity = is_communication(stream) ? Activity::in_flight : Activity::running;
    return status;
  }
  status.activity = Activity::waiting;
  const auto missing = std::find_if(current.after.begin(), current.after.end(),
                                    [this](TaskId earlier) { return !done(earlier); });
  if (missing != current.after.end()) {
    status.waits_for = label(task(*missing));
    status.waits_for_stream = name_of(task(*missing).stream);
  }
  return status;
}

Status Step::status(std::int64_t now) const {
  Status all;
  for (int i = 0; i < schedule::kStreams; ++i) {
    all[static_cast<std::size_t>(i)] = status(static_cast<Stream>(i), now);
  }
  return all;
}

}  // namespace expedite::runtime
