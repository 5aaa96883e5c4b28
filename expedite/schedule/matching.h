// Which communication tasks of different ranks meet.
#pragma once

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

/// "rank 1 task 17 'L3 mb0 dispatch forward'".
[[nodiscard]] std::string describe(std::span<const Schedule> schedules, RankTask task);

/// Matches the communication of all ranks. What cannot be matched is added to `problems`. Ids must be in
/// range and every communication task's rank a member of its group.
[[nodiscard]] std::vector<Meeting> match_communication(std::span<const Schedule> schedules,
                                                       std::vector<std::string>& problems);

}  // namespace expedite::schedule
