#include "expedite/cost/task_graph.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "expedite/base/error.h"

namespace expedite::cost {
namespace {

using schedule::Collective;
using schedule::Schedule;
using schedule::Stream;
using schedule::Task;

/// Calls visit(earlier, later) for all pairs of tasks of a schedule where one directly waits for the other.
template <typename Visit>
void for_each_edge(const Schedule& schedule, const Visit& visit) {
  std::array<schedule::TaskId, schedule::kStreams> last;
  last.fill(-1);
  for (std::size_t id = 0; id < schedule.tasks.size(); ++id) {
    const Task& task = schedule.tasks[id];
    schedule::TaskId& previous = last[static_cast<std::size_t>(task.stream)];
    if (previous >= 0) {
      visit(previous, static_cast<schedule::TaskId>(id));
    }
    previous = static_cast<schedule::TaskId>(id);
    for (const schedule::TaskId earlier : task.after) {
      visit(earlier, static_cast<schedule::TaskId>(id));
    }
  }
}

/// Collectives of a group on a stream meet in the order of issue; so do sends and receives of a link.
class Meetings {
 public:
  explicit Meetings(std::span<const RankClass> ranks) : group_ids_(ranks.size()) {
    std::map<std::pair<std::string_view, std::span<const int>>, int, Less> known;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const Schedule& schedule = *ranks[rank].schedule;
      const bool added = ranks_.emplace(schedule.rank, rank).second;
      require(added, "two of the schedules to simulate are rank {}'s", schedule.rank);
      for (const schedule::Group& group : schedule.groups) {
        const auto id = known.try_emplace({group.name, group.ranks}, static_cast<int>(known.size())).first;
        group_ids_[rank].push_back(id->second);
      }
    }
  }

  void add(std::size_t rank, const Schedule& schedule, const Task& task, Node node) {
    const schedule::Communication& communication = *task.communication;
    const int group = group_ids_[rank][static_cast<std::size_t>(communication.group)];
    const bool send = communication.collective == Collective::send;
    if (!send && communication.collective != Collective::receive) {
      place({group, task.stream, -1, -1}, static_cast<int>(rank), node);
      return;
    }
    if (!ranks_.contains(communication.peer)) {
      fail(
          "rank {}: '{}' has peer {}, which is not simulated: simulate a rank of every stage at the same "
          "place",
          schedule.rank, schedule::label(task), communication.peer);
    }
    const int from = send ? schedule.rank : communication.peer;
    const int to = send ? communication.peer : schedule.rank;
    place({group, send ? schedule::arrival_of(task.stream) : task.stream, from, to}, send ? 0 : 1, node);
  }

  [[nodiscard]] std::vector<std::vector<Node>> take() {
    std::vector<std::vector<Node>> all;
    for (auto& [key, channel] : channels_) {
      const auto [group, stream, from, to] = key;
      for (const std::vector<Node>& meeting : channel.meetings) {
        require(from < 0 || meeting.size() == 2,
                "a message from rank {} to rank {} has only one end: schedule::verify says which", from, to);
      }
      std::move(channel.meetings.begin(), channel.meetings.end(), std::back_inserter(all));
    }
    return all;
  }

 private:
  struct Less {
    template <typename Key>
    bool operator()(const Key& a, const Key& b) const {
      return a.first != b.first ? a.first < b.first
                                : std::lexicographical_compare(a.second.begin(), a.second.end(),
                                                               b.second.begin(), b.second.end());
    }
  };
  using Key = std::tuple<int, Stream, int, int>;  // group, stream, and of messages from and to
  struct Channel {
    std::map<int, std::size_t> issued;  // by member
    std::vector<std::vector<Node>> meetings;
  };

  void place(const Key& key, int member, Node node) {
    Channel& channel = channels_[key];
    const std::size_t number = channel.issued[member]++;
    if (number == channel.meetings.size()) {
      channel.meetings.emplace_back();
    }
    channel.meetings[number].push_back(node);
  }

  std::map<int, std::size_t> ranks_;         // world rank to index
  std::vector<std::vector<int>> group_ids_;  // of each rank's groups, equal for equal groups
  std::map<Key, Channel> channels_;
};

}  // namespace

TaskGraph::TaskGraph(std::span<const RankClass> ranks) : ranks_(ranks) {
  std::size_t tasks = 0;
  for (const RankClass& rank : ranks) {
    first_.push_back(static_cast<Node>(tasks));
    tasks += rank.schedule->tasks.size();
  }
  require(tasks < static_cast<std::size_t>(std::numeric_limits<Node>::max()),
          "too many tasks to simulate: {}", tasks);
  rank_of_.reserve(tasks);
  task_.reserve(tasks);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Task& task : ranks[rank].schedule->tasks) {
      rank_of_.push_back(static_cast<std::uint32_t>(rank));
      task_.push_back(&task);
    }
  }
  add_edges();
  match();
}

void TaskGraph::add_edges() {
  waits_for_.assign(task_.size(), 0);
  first_follower_.assign(task_.size() + 1, 0);
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for_each_edge(*ranks_[rank].schedule, [&](schedule::TaskId earlier, schedule::TaskId later) {
      ++waits_for_[at(first_[rank] + later)];
      ++first_follower_[at(first_[rank] + earlier) + 1];
    });
  }
  for (std::size_t node = 0; node < task_.size(); ++node) {
    first_follower_[node + 1] += first_follower_[node];
  }
  followers_.resize(at(first_follower_.back()));
  std::vector<std::int32_t> next(first_follower_.begin(), first_follower_.end() - 1);
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for_each_edge(*ranks_[rank].schedule, [&](schedule::TaskId earlier, schedule::TaskId later) {
      followers_[at(next[at(first_[rank] + earlier)]++)] = first_[rank] + later;
    });
  }
}

void TaskGraph::match() {
  Meetings meetings(ranks_);
  for (Node node = 0; node < nodes(); ++node) {
    if (task(node).communication) {
      meetings.add(rank_of(node), schedule_of(node), task(node), node);
    }
  }
  meetings_ = meetings.take();
  meeting_of_.assign(task_.size(), -1);
  for (std::size_t meeting = 0; meeting < meetings_.size(); ++meeting) {
    for (const Node node : meetings_[meeting]) {
      meeting_of_[at(node)] = static_cast<std::int32_t>(meeting);
    }
  }
}

}  // namespace expedite::cost
