// What `expedite schedule` says of schedules.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "expedite/schedule/schedule.h"

namespace expedite::cli {

struct ScheduleCheck {
  bool sound = true;
  std::string text;  // one line: counts where sound; else a line for each of the first faults
};
/// schedules[i] is rank i's. `who`: whose they are, in words: "4 ranks".
[[nodiscard]] ScheduleCheck check_schedules(std::span<const schedule::Schedule> schedules,
                                            const std::string& who);

/// {"schedules": [...]} as schedule::to_json() has each.
[[nodiscard]] std::string schedules_json(std::span<const schedule::Schedule* const> schedules);

}  // namespace expedite::cli
