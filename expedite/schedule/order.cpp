#include "expedite/schedule/order.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace expedite::schedule {
namespace {

std::size_t index(TaskId task) {
  return static_cast<std::size_t>(task);
}

}  // namespace

LocalOrder::LocalOrder(const Schedule& schedule)
    : schedule_(schedule),
      predecessor_(schedule.tasks.size(), -1),
      position_(schedule.tasks.size(), 0),
      clock_(schedule.tasks.size()) {
  number_streams();
  sort();
}

bool LocalOrder::before(TaskId first, TaskId second) const {
  const auto stream = static_cast<std::size_t>(schedule_.tasks[index(first)].stream);
  return clock_[index(second)][stream] >= position_[index(first)];
}

void LocalOrder::number_streams() {
  std::array<TaskId, kStreams> last;
  last.fill(-1);
  for (std::size_t task = 0; task < position_.size(); ++task) {
    TaskId& previous = last[static_cast<std::size_t>(schedule_.tasks[task].stream)];
    predecessor_[task] = previous;
    position_[task] = previous < 0 ? 1 : position_[index(previous)] + 1;
    previous = static_cast<TaskId>(task);
  }
}

// Kahn's algorithm; of the tasks that could run next, the one that stands first.
void LocalOrder::sort() {
  std::vector<std::vector<TaskId>> followers(position_.size());
  std::vector<std::int32_t> missing(position_.size(), 0);
  const auto add_edge = [&](TaskId from, std::size_t to) {
    followers[index(from)].push_back(static_cast<TaskId>(to));
    ++missing[to];
  };
  for (std::size_t task = 0; task < position_.size(); ++task) {
    if (predecessor_[task] >= 0) {
      add_edge(predecessor_[task], task);
    }
    for (const TaskId earlier : schedule_.tasks[task].after) {
      add_edge(earlier, task);
    }
  }
  std::priority_queue<TaskId, std::vector<TaskId>, std::greater<>> ready;
  for (std::size_t task = 0; task < position_.size(); ++task) {
    if (missing[task] == 0) {
      ready.push(static_cast<TaskId>(task));
    }
  }
  sequence_.reserve(position_.size());
  while (!ready.empty()) {
    const TaskId task = ready.top();
    ready.pop();
    sequence_.push_back(task);
    for (const TaskId follower : followers[index(task)]) {
      raise_clock(follower, task);
      if (--missing[index(follower)] == 0) {
        ready.push(follower);
      }
    }
  }
}

void LocalOrder::raise_clock(TaskId task, TaskId earlier) {
  auto& clock = clock_[index(task)];
  const auto& other = clock_[index(earlier)];
  std::transform(clock.begin(), clock.end(), other.begin(), clock.begin(),
                 [](std::int32_t a, std::int32_t b) { return std::max(a, b); });
  auto& own = clock[static_cast<std::size_t>(schedule_.tasks[index(earlier)].stream)];
  own = std::max(own, position_[index(earlier)]);
}

}  // namespace expedite::schedule
