#include "expedite/schedule/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "expedite/base/error.h"
#include "expedite/schedule/deadlock.h"
#include "expedite/schedule/matching.h"
#include "expedite/schedule/order.h"

namespace expedite::schedule {
namespace {

template <typename Id, typename Container>
bool in_range(Id id, const Container& container) {
  return id >= 0 && static_cast<std::size_t>(id) < container.size();
}

/// Checks that need no other task: ids, streams, groups.
class ShapeCheck {
 public:
  ShapeCheck(const Schedule& schedule, int ranks, std::vector<std::string>& problems)
      : schedule_(schedule), rank_(schedule.rank), ranks_(ranks), problems_(problems) {}

  void run() {
    check_groups();
    for (std::size_t id = 0; id < schedule_.tasks.size(); ++id) {
      check_task(static_cast<TaskId>(id));
    }
  }

 private:
  template <typename... Args>
  void report(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  void check_groups() {
    const auto& groups = schedule_.groups;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const Group& group = groups[i];
      if (std::adjacent_find(group.ranks.begin(), group.ranks.end(), std::greater_equal<>()) !=
          group.ranks.end()) {
        report("rank {} group {}: its ranks are not ascending", rank_, group.name);
      }
      for (const int member : group.ranks) {
        if (member < 0 || member >= ranks_) {
          report("rank {} group {}: there is no rank {}", rank_, group.name, member);
        }
      }
      for (std::size_t j = 0; j < i; ++j) {
        if (groups[j].name == group.name) {
          report("rank {} has two groups named {}", rank_, group.name);
        }
      }
    }
  }

  void check_task(TaskId id) {
    const Task& task = schedule_.tasks[static_cast<std::size_t>(id)];
    const auto name = [&] { return describe(schedule_, id); };
    for (const TaskId earlier : task.after) {
      if (!in_range(earlier, schedule_.tasks)) {
        report("{} depends on task {}, which does not exist", name(), earlier);
      }
    }
    for (const auto* list : {&task.acquires, &task.uses, &task.releases}) {
      for (const BufferId buffer : *list) {
        if (!in_range(buffer, schedule_.buffers)) {
          report("{} names buffer {}, which does not exist", name(), buffer);
        }
      }
    }
    if (static_cast<int>(task.stream) >= kStreams) {
      report("{} is on stream {}, which does not exist", name(), static_cast<int>(task.stream));
    } else if (task.communication.has_value() != is_communication(task.stream)) {
      report("{} {} but is on stream {}", name(),
             task.communication ? "communicates" : "does not communicate", name_of(task.stream));
    }
    if (task.communication) {
      check_communication(id, *task.communication);
    }
  }

  void check_communication(TaskId id, const Communication& communication) {
    const std::string name = describe(schedule_, id);
    if (!in_range(communication.group, schedule_.groups)) {
      report("{} names group {}, which does not exist", name, communication.group);
      return;
    }
    const Group& group = schedule_.groups[static_cast<std::size_t>(communication.group)];
    const auto is_member = [&](int rank) {
      return std::find(group.ranks.begin(), group.ranks.end(), rank) != group.ranks.end();
    };
    if (!is_member(rank_)) {
      report("{} communicates in group {}, of which rank {} is no member", name, group.name, rank_);
    }
    const bool message =
        communication.collective == Collective::send || communication.collective == Collective::receive;
    if (message && (communication.peer == rank_ || !is_member(communication.peer))) {
      report("{} has peer {}, which is not another member of group {}", name, communication.peer, group.name);
    }
  }

  const Schedule& schedule_;
  int rank_;
  int ranks_;
  std::vector<std::string>& problems_;
};

/// The life of every buffer of one rank.
class BufferCheck {
 public:
  BufferCheck(const Schedule& schedule, const LocalOrder& order, std::vector<std::string>& problems)
      : schedule_(schedule), order_(order), problems_(problems) {}

  void run() {
    lives_.resize(schedule_.buffers.size());
    for (std::size_t id = 0; id < schedule_.tasks.size(); ++id) {
      const Task& task = schedule_.tasks[id];
      for (const BufferId buffer : task.acquires) {
        lives_[static_cast<std::size_t>(buffer)].acquired.push_back(static_cast<TaskId>(id));
      }
      for (const BufferId buffer : task.uses) {
        lives_[static_cast<std::size_t>(buffer)].used.push_back(static_cast<TaskId>(id));
      }
      for (const BufferId buffer : task.releases) {
        lives_[static_cast<std::size_t>(buffer)].released.push_back(static_cast<TaskId>(id));
      }
    }
    for (std::size_t buffer = 0; buffer < lives_.size(); ++buffer) {
      check(static_cast<BufferId>(buffer), lives_[buffer]);
    }
  }

 private:
  struct Life {
    std::vector<TaskId> acquired;
    std::vector<TaskId> used;
    std::vector<TaskId> released;
  };

  [[nodiscard]] std::string name(TaskId task) const { return describe(schedule_, task); }

  void check(BufferId buffer, const Life& life) {
    if (life.acquired.empty() && life.used.empty() && life.released.empty()) {
      return;  // a buffer that this step does not need
    }
    if (life.acquired.size() != 1) {
      const TaskId task =
          life.acquired.empty() ? (life.used.empty() ? life.released : life.used).front() : life.acquired[1];
      problems_.push_back(fmt::format("{} {} buffer {}, which is acquired {} times instead of once",
                                      name(task), life.acquired.empty() ? "needs" : "acquires", buffer,
                                      life.acquired.size()));
      return;
    }
    const TaskId acquire = life.acquired.front();
    if (life.released.size() != 1) {
      problems_.push_back(fmt::format("{} {} buffer {}, which is released {} times instead of once",
                                      name(life.released.empty() ? acquire : life.released[1]),
                                      life.released.empty() ? "acquires" : "releases", buffer,
                                      life.released.size()));
      return;
    }
    check_order(buffer, life, acquire, life.released.front());
  }

  void check_order(BufferId buffer, const Life& life, TaskId acquire, TaskId release) {
    if (acquire != release && !order_.before(acquire, release)) {
      problems_.push_back(
          fmt::format("{} releases buffer {}, but {}, which acquires it, is not sure to come "
                      "before",
                      name(release), buffer, name(acquire)));
    }
    for (const TaskId use : life.used) {
      if (use != acquire && !order_.before(acquire, use)) {
        problems_.push_back(
            fmt::format("{} uses buffer {}, but {}, which acquires it, is not sure to come "
                        "before",
                        name(use), buffer, name(acquire)));
      }
      if (use != release && !order_.before(use, release)) {
        problems_.push_back(
            fmt::format("{} uses buffer {}, but {}, which releases it, is not sure to come "
                        "after",
                        name(use), buffer, name(release)));
      }
    }
  }

  const Schedule& schedule_;
  const LocalOrder& order_;
  std::vector<std::string>& problems_;
  std::vector<Life> lives_;
};

}  // namespace

std::vector<std::string> verify(std::span<const Schedule> schedules) {
  std::vector<std::string> problems;
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    if (schedules[rank].rank != static_cast<int>(rank)) {
      problems.push_back(fmt::format("schedule {} says it is rank {}'s", rank, schedules[rank].rank));
    }
    ShapeCheck(schedules[rank], static_cast<int>(schedules.size()), problems).run();
  }
  if (!problems.empty()) {
    return problems;  // the other checks follow ids and groups
  }
  const std::vector<Meeting> meetings = match_communication(schedules, problems);
  if (std::string deadlock = find_deadlock(schedules, meetings); !deadlock.empty()) {
    problems.push_back(std::move(deadlock));
  }
  for (const Schedule& schedule : schedules) {
    const LocalOrder order(schedule);
    if (order.acyclic()) {
      BufferCheck(schedule, order, problems).run();
    }
  }
  return problems;
}

std::vector<std::string> verify_alone(const Schedule& schedule, int ranks) {
  std::vector<std::string> problems;
  if (schedule.rank < 0 || schedule.rank >= ranks) {
    problems.push_back(fmt::format("there is no rank {} among {}", schedule.rank, ranks));
  }
  ShapeCheck(schedule, ranks, problems).run();
  if (!problems.empty()) {
    return problems;
  }
  const LocalOrder order(schedule);
  if (order.acyclic()) {
    BufferCheck(schedule, order, problems).run();
  } else {
    problems.push_back(find_deadlock({&schedule, 1}, {}));
  }
  return problems;
}

MemoryForecast forecast_memory(const Schedule& schedule) {
  const LocalOrder order(schedule);
  require(order.acyclic(), "rank {}: the schedule's dependencies go round in a circle; verify it first",
          schedule.rank);
  MemoryForecast forecast;
  std::array<std::int64_t, kMemoryCategories> current{};
  std::int64_t total = 0;
  const auto change = [&](BufferId id, std::int64_t sign) {
    const LogicalBuffer& buffer = schedule.buffers[static_cast<std::size_t>(id)];
    current[static_cast<std::size_t>(buffer.category)] += sign * buffer.expected_bytes;
    total += sign * buffer.expected_bytes;
  };
  for (const TaskId id : order.sequence()) {
    const Task& task = schedule.tasks[static_cast<std::size_t>(id)];
    for (const BufferId buffer : task.acquires) {
      change(buffer, 1);
    }
    for (std::size_t i = 0; i < current.size(); ++i) {
      forecast.peak[i] = std::max(forecast.peak[i], current[i]);
    }
    forecast.total_peak = std::max(forecast.total_peak, total);
    for (const BufferId buffer : task.releases) {
      change(buffer, -1);
    }
  }
  return forecast;
}

}  // namespace expedite::schedule
