#include "expedite/schedule/matching.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

namespace expedite::schedule {
namespace {

const Task& task_of(std::span<const Schedule> schedules, RankTask where) {
  return schedules[static_cast<std::size_t>(where.rank)].tasks[static_cast<std::size_t>(where.task)];
}

// Ranks name a group by their own index; across ranks it is its name and members.
struct Channel {
  const Group* group;
  Stream stream;

  bool operator<(const Channel& other) const {
    return std::tie(group->name, group->ranks, stream) <
           std::tie(other.group->name, other.group->ranks, other.stream);
  }
};
struct Link {
  Channel channel;  // its stream: where the message arrives
  int from;
  int to;

  bool operator<(const Link& other) const {
    return std::tie(channel, from, to) < std::tie(other.channel, other.from, other.to);
  }
};
struct LinkTasks {
  std::vector<RankTask> sends;
  std::vector<RankTask> receives;
};

struct Issued {
  std::map<Channel, std::map<int, std::vector<RankTask>>> collectives;  // by rank, in issue order
  std::map<Link, LinkTasks> messages;
};

Issued collect(std::span<const Schedule> schedules) {
  Issued issued;
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    const Schedule& schedule = schedules[rank];
    const int self = static_cast<int>(rank);
    for (std::size_t id = 0; id < schedule.tasks.size(); ++id) {
      const Task& task = schedule.tasks[id];
      if (!task.communication) {
        continue;
      }
      const Communication& communication = *task.communication;
      const Channel channel{&schedule.groups[static_cast<std::size_t>(communication.group)], task.stream};
      const RankTask where{self, static_cast<TaskId>(id)};
      if (communication.collective == Collective::send) {
        const Channel arrival{channel.group, arrival_of(task.stream)};
        issued.messages[{arrival, self, communication.peer}].sends.push_back(where);
      } else if (communication.collective == Collective::receive) {
        issued.messages[{channel, communication.peer, self}].receives.push_back(where);
      } else {
        issued.collectives[channel][self].push_back(where);
      }
    }
  }
  return issued;
}

bool same_collective(const Task& a, const Task& b) {
  return a.communication->collective == b.communication->collective && a.op == b.op && a.pass == b.pass &&
         a.layer == b.layer && a.micro_batch == b.micro_batch && a.chunk == b.chunk;
}

// A stage's send and the next stage's receive may bear different layers.
bool same_message(const Task& a, const Task& b) {
  return a.pass == b.pass && a.micro_batch == b.micro_batch && a.chunk == b.chunk;
}

std::string describe_with_collective(std::span<const Schedule> schedules, RankTask where) {
  return fmt::format("{} ({})", describe(schedules, where),
                     name_of(task_of(schedules, where).communication->collective));
}

class Matcher {
 public:
  Matcher(std::span<const Schedule> schedules, std::vector<std::string>& problems)
      : schedules_(schedules), problems_(problems) {}

  std::vector<Meeting> run() {
    const Issued issued = collect(schedules_);
    for (const auto& [channel, by_rank] : issued.collectives) {
      match_collectives(channel, by_rank);
    }
    for (const auto& [link, tasks] : issued.messages) {
      match_messages(link, tasks);
    }
    return std::move(meetings_);
  }

 private:
  void match_collectives(const Channel& channel, const std::map<int, std::vector<RankTask>>& by_rank) {
    const std::vector<RankTask>& reference = by_rank.begin()->second;
    const std::size_t problems_before = problems_.size();
    std::vector<Meeting> meetings(reference.size());
    for (const int rank : channel.group->ranks) {
      const auto found = by_rank.find(rank);
      const std::vector<RankTask> nothing;
      const std::vector<RankTask>& mine = found == by_rank.end() ? nothing : found->second;
      compare(channel, reference, rank, mine);
      for (std::size_t i = 0; i < std::min(mine.size(), reference.size()); ++i) {
        meetings[i].push_back(mine[i]);
      }
    }
    if (problems_.size() == problems_before) {
      std::move(meetings.begin(), meetings.end(), std::back_inserter(meetings_));
    }
  }

  // Reports the first place where a rank's collectives differ from the reference rank's: what follows a
  // difference differs as well.
  void compare(const Channel& channel, const std::vector<RankTask>& reference, int rank,
               const std::vector<RankTask>& mine) {
    for (std::size_t i = 0; i < std::max(reference.size(), mine.size()); ++i) {
      const std::string place = fmt::format("number {} among the collectives of group {} on stream {}", i + 1,
                                            channel.group->name, name_of(channel.stream));
      if (i >= mine.size()) {
        problems_.push_back(fmt::format("{} is {}, but rank {} has only {}: it lacks this one",
                                        describe_with_collective(schedules_, reference[i]), place, rank,
                                        mine.size()));
        return;
      }
      if (i >= reference.size()) {
        problems_.push_back(fmt::format("{} is {}, but rank {} has only {}: it lacks this one",
                                        describe_with_collective(schedules_, mine[i]), place,
                                        reference.front().rank, reference.size()));
        return;
      }
      if (!same_collective(task_of(schedules_, mine[i]), task_of(schedules_, reference[i]))) {
        problems_.push_back(fmt::format("{} is {}, where {} stands on the other rank",
                                        describe_with_collective(schedules_, mine[i]), place,
                                        describe_with_collective(schedules_, reference[i])));
        return;
      }
    }
  }

  void match_messages(const Link& link, const LinkTasks& tasks) {
    const std::size_t matched = std::min(tasks.sends.size(), tasks.receives.size());
    for (std::size_t i = 0; i < matched; ++i) {
      if (!same_message(task_of(schedules_, tasks.sends[i]), task_of(schedules_, tasks.receives[i]))) {
        problems_.push_back(
            fmt::format("{} and {} are number {} of the messages from rank {} to rank {} on "
                        "stream {}, but they are not the same message",
                        describe_with_collective(schedules_, tasks.sends[i]),
                        describe_with_collective(schedules_, tasks.receives[i]), i + 1, link.from, link.to,
                        name_of(link.channel.stream)));
        return;
      }
      meetings_.push_back({tasks.sends[i], tasks.receives[i]});
    }
    if (tasks.sends.size() > matched) {
      problems_.push_back(fmt::format("{} sends to rank {}, which has no receive for it on stream {}",
                                      describe_with_collective(schedules_, tasks.sends[matched]), link.to,
                                      name_of(link.channel.stream)));
    }
    if (tasks.receives.size() > matched) {
      problems_.push_back(fmt::format("{} receives from rank {}, which has no send for it on stream {}",
                                      describe_with_collective(schedules_, tasks.receives[matched]),
                                      link.from, name_of(link.channel.stream)));
    }
  }

  std::span<const Schedule> schedules_;
  std::vector<std::string>& problems_;
  std::vector<Meeting> meetings_;
};

}  // namespace

std::string describe(std::span<const Schedule> schedules, RankTask task) {
  return fmt::format("rank {} task {} '{}'", task.rank, task.task, label(task_of(schedules, task)));
}

std::vector<Meeting> match_communication(std::span<const Schedule> schedules,
                                         std::vector<std::string>& problems) {
  return Matcher(schedules, problems).run();
}

}  // namespace expedite::schedule
