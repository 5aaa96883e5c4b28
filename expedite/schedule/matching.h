// Which communication tasks of different ranks meet.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "expedite/schedule/schedule.h"

namespace expedite::schedule {

struct RankTask {
  int rank = 0;
  TaskId task = 0;
};

/// Tasks that end only when all of them have started: a collective on every member, or a send and its
/// receive.
using Meeting = std::vector<RankTask>;

/// What of a communication task must be the same on all ranks that it meets.
using MatchKey = std::array<int, 7>;
[[nodiscard]] MatchKey match_key(const Task& task);

/// Ranks name a group by their own index; across ranks a queue of collectives is a group's name and members,
/// and a stream. Of messages `stream` is where they arrive, and only one direction between two ranks is one
/// queue.
struct Channel {
  const Group* group = nullptr;
  Stream stream = Stream::intra;
  int from = -1;  // of messages
  int to = -1;

  [[nodiscard]] bool of_messages() const { return from >= 0; }
  bool operator<(const Channel& other) const;
};
/// Of a communication task of the schedule. The schedule must outlive it.
[[nodiscard]] Channel channel_of(const Schedule& schedule, const Task& task);

/// "rank 1 task 17 'L3 mb0 dispatch forward'".
[[nodiscard]] std::string describe(const Schedule& schedule, TaskId task);
[[nodiscard]] std::string describe(std::span<const Schedule> schedules, RankTask task);

/// Matches the communication of all ranks. What cannot be matched is added to `problems`. Ids must be in
/// range and every communication task's rank a member of its group.
[[nodiscard]] std::vector<Meeting> match_communication(std::span<const Schedule> schedules,
                                                       std::vector<std::string>& problems);

}  // namespace expedite::schedule
