#include "expedite/schedule/deadlock.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

namespace expedite::schedule {
namespace {

using Node = std::int64_t;

// Nodes: the start of every task, then every meeting. A task that meets others ends with the meeting, so
// whatever waits for the task waits for the meeting, and the meeting waits for the starts of all its tasks.
class WaitGraph {
 public:
  WaitGraph(std::span<const Schedule> schedules, std::span<const Meeting> meetings)
      : schedules_(schedules), meetings_(meetings) {
    for (const Schedule& schedule : schedules) {
      first_.push_back(tasks_);
      tasks_ += static_cast<Node>(schedule.tasks.size());
    }
    waits_for_.resize(static_cast<std::size_t>(tasks_) + meetings.size());
    end_.resize(static_cast<std::size_t>(tasks_));
    for (Node node = 0; node < tasks_; ++node) {
      end_[static_cast<std::size_t>(node)] = node;
    }
    add_meetings();
    for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
      add_rank(static_cast<int>(rank));
    }
  }

  /// Nodes of one circle, each waiting for the next; empty if there is none.
  [[nodiscard]] std::vector<Node> find_circle() const {
    std::vector<std::int32_t> missing(waits_for_.size(), 0);
    std::vector<std::vector<Node>> followers(waits_for_.size());
    for (std::size_t node = 0; node < waits_for_.size(); ++node) {
      missing[node] = static_cast<std::int32_t>(waits_for_[node].size());
      for (const Node earlier : waits_for_[node]) {
        followers[static_cast<std::size_t>(earlier)].push_back(static_cast<Node>(node));
      }
    }
    std::vector<Node> done;
    done.reserve(waits_for_.size());
    for (std::size_t node = 0; node < waits_for_.size(); ++node) {
      if (missing[node] == 0) {
        done.push_back(static_cast<Node>(node));
      }
    }
    for (std::size_t next = 0; next < done.size(); ++next) {
      for (const Node follower : followers[static_cast<std::size_t>(done[next])]) {
        if (--missing[static_cast<std::size_t>(follower)] == 0) {
          done.push_back(follower);
        }
      }
    }
    return done.size() == waits_for_.size() ? std::vector<Node>{} : walk_circle(missing);
  }

  [[nodiscard]] std::string describe_circle(const std::vector<Node>& circle) const {
    constexpr std::size_t kShown = 12;
    std::string text = "these tasks wait for each other in a circle and would never run: ";
    std::size_t shown = 0;
    for (const Node node : circle) {
      if (node >= tasks_) {
        continue;  // the tasks that meet stand on both sides of it
      }
      if (++shown > kShown) {
        return text + fmt::format("and {} more", circle.size() - kShown);
      }
      text += (shown == 1 ? "" : ", which waits for ") + describe(schedules_, rank_task(node));
    }
    return text + ", which waits for the first";
  }

 private:
  [[nodiscard]] Node node_of(RankTask where) const {
    return first_[static_cast<std::size_t>(where.rank)] + where.task;
  }
  [[nodiscard]] RankTask rank_task(Node node) const {
    const auto after = std::upper_bound(first_.begin(), first_.end(), node);
    const auto rank = std::distance(first_.begin(), after) - 1;
    return {static_cast<int>(rank), static_cast<TaskId>(node - first_[static_cast<std::size_t>(rank)])};
  }

  void add_meetings() {
    for (std::size_t i = 0; i < meetings_.size(); ++i) {
      const Node meeting = tasks_ + static_cast<Node>(i);
      for (const RankTask& member : meetings_[i]) {
        waits_for_[static_cast<std::size_t>(meeting)].push_back(node_of(member));
        end_[static_cast<std::size_t>(node_of(member))] = meeting;
      }
    }
  }

  void add_rank(int rank) {
    std::array<Node, kStreams> last;
    last.fill(-1);
    const auto& tasks = schedules_[static_cast<std::size_t>(rank)].tasks;
    for (std::size_t id = 0; id < tasks.size(); ++id) {
      const Node node = node_of({rank, static_cast<TaskId>(id)});
      auto& waits = waits_for_[static_cast<std::size_t>(node)];
      Node& previous = last[static_cast<std::size_t>(tasks[id].stream)];
      if (previous >= 0) {
        waits.push_back(end_[static_cast<std::size_t>(previous)]);
      }
      previous = node;
      for (const TaskId earlier : tasks[id].after) {
        waits.push_back(end_[static_cast<std::size_t>(node_of({rank, earlier}))]);
      }
    }
  }

  // Every node that never ran waits for another one that never ran: following those leads into a circle.
  [[nodiscard]] std::vector<Node> walk_circle(const std::vector<std::int32_t>& missing) const {
    const auto stuck = [&](Node node) { return missing[static_cast<std::size_t>(node)] > 0; };
    Node node = 0;
    while (!stuck(node)) {
      ++node;
    }
    std::vector<std::int64_t> seen_at(waits_for_.size(), -1);
    std::vector<Node> path;
    while (seen_at[static_cast<std::size_t>(node)] < 0) {
      seen_at[static_cast<std::size_t>(node)] = static_cast<std::int64_t>(path.size());
      path.push_back(node);
      const auto& waits = waits_for_[static_cast<std::size_t>(node)];
      node = *std::find_if(waits.begin(), waits.end(), stuck);
    }
    path.erase(path.begin(), path.begin() + seen_at[static_cast<std::size_t>(node)]);
    return path;
  }

  std::span<const Schedule> schedules_;
  std::span<const Meeting> meetings_;
  std::vector<Node> first_;  // node of each rank's task 0
  Node tasks_ = 0;
  std::vector<std::vector<Node>> waits_for_;
  std::vector<Node> end_;  // by task: the node that is its end
};

}  // namespace

std::string find_deadlock(std::span<const Schedule> schedules, std::span<const Meeting> meetings) {
  const WaitGraph graph(schedules, meetings);
  const std::vector<Node> circle = graph.find_circle();
  return circle.empty() ? std::string() : graph.describe_circle(circle);
}

}  // namespace expedite::schedule
