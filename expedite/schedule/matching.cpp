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

struct LinkTasks {
  std::vector<RankTask> sends;
  std::vector<RankTask> receives;
};

struct Issued {
  std::map<Channel, std::map<int, std::vector<RankTask>>> collectives;  // by rank, in issue order
  std::map<Channel, LinkTasks> messages;
};

Issued collect(std::span<const Schedule> schedules) {
  Issued issued;
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    const Schedule& schedule = schedules[rank];
    for (std::size_t id = 0; id < schedule.tasks.size(); ++id) {
      const Task& task = schedule.tasks[id];
      if (!task.communication) {
        continue;
      }
      const Channel channel = channel_of(schedule, task);
      const RankTask where{static_cast<int>(rank), static_cast<TaskId>(id)};
      if (!channel.of_messages()) {
        issued.collectives[channel][where.rank].push_back(where);
      } else if (task.communication->collective == Collective::send) {
        issued.messages[channel].sends.push_back(where);
      } else {
        issued.messages[channel].receives.push_back(where);
      }
    }
  }
  return issued;
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
      if (match_key(task_of(schedules_, mine[i])) != match_key(task_of(schedules_, reference[i]))) {
        problems_.push_back(fmt::format("{} is {}, where {} stands on the other rank",
                                        describe_with_collective(schedules_, mine[i]), place,
                                        describe_with_collective(schedules_, reference[i])));
        return;
      }
    }
  }

  void match_messages(const Channel& link, const LinkTasks& tasks) {
    const std::size_t matched = std::min(tasks.sends.size(), tasks.receives.size());
    for (std::size_t i = 0; i < matched; ++i) {
      if (match_key(task_of(schedules_, tasks.sends[i])) !=
          match_key(task_of(schedules_, tasks.receives[i]))) {
        problems_.push_back(
            fmt::format("{} and {} are number {} of the messages from rank {} to rank {} on "
                        "stream {}, but they are not the same message",
                        describe_with_collective(schedules_, tasks.sends[i]),
                        describe_with_collective(schedules_, tasks.receives[i]), i + 1, link.from, link.to,
                        name_of(link.stream)));
        return;
      }
      meetings_.push_back({tasks.sends[i], tasks.receives[i]});
    }
    if (tasks.sends.size() > matched) {
      problems_.push_back(fmt::format("{} sends to rank {}, which has no receive for it on stream {}",
                                      describe_with_collective(schedules_, tasks.sends[matched]), link.to,
                                      name_of(link.stream)));
    }
    if (tasks.receives.size() > matched) {
      problems_.push_back(fmt::format("{} receives from rank {}, which has no send for it on stream {}",
                                      describe_with_collective(schedules_, tasks.receives[matched]),
                                      link.from, name_of(link.stream)));
    }
  }

  std::span<const Schedule> schedules_;
  std::vector<std::string>& problems_;
  std::vector<Meeting> meetings_;
};

}  // namespace

MatchKey match_key(const Task& task) {
  const Collective collective = task.communication->collective;
  const auto number = [](auto value) { return static_cast<int>(value); };
  if (collective == Collective::send || collective == Collective::receive) {
    // A stage's send and the next stage's receive may bear different layers.
    return {-1, -1, number(task.pass), -1, task.micro_batch, task.chunk, number(task.piece)};
  }
  return {number(collective), number(task.op), number(task.pass), task.layer,
          task.micro_batch,   task.chunk,      number(task.piece)};
}

bool Channel::operator<(const Channel& other) const {
  return std::tie(group->name, group->ranks, stream, from, to) <
         std::tie(other.group->name, other.group->ranks, other.stream, other.from, other.to);
}

Channel channel_of(const Schedule& schedule, const Task& task) {
  const Communication& communication = *task.communication;
  Channel channel{&schedule.groups[static_cast<std::size_t>(communication.group)], task.stream};
  if (communication.collective == Collective::send) {
    channel.stream = arrival_of(task.stream);
    channel.from = schedule.rank;
    channel.to = communication.peer;
  } else if (communication.collective == Collective::receive) {
    channel.from = communication.peer;
    channel.to = schedule.rank;
  }
  return channel;
}

std::string describe(const Schedule& schedule, TaskId task) {
  return fmt::format("rank {} task {} '{}'", schedule.rank, task,
                     label(schedule.tasks[static_cast<std::size_t>(task)]));
}

std::string describe(std::span<const Schedule> schedules, RankTask task) {
  return describe(schedules[static_cast<std::size_t>(task.rank)], task.task);
}

std::vector<Meeting> match_communication(std::span<const Schedule> schedules,
                                         std::vector<std::string>& problems) {
  return Matcher(schedules, problems).run();
}

}  // namespace expedite::schedule
