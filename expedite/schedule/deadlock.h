// Finds tasks of any ranks that wait for each other in a circle.
#pragma once

#include <span>
#include <string>

#include "expedite/schedule/matching.h"
#include "expedite/schedule/schedule.h"

namespace expedite::schedule {

/// A sentence that names the tasks of one circle of dependencies, stream order and meetings; empty if there
/// is none. All ids of the schedules must be in range.
[[nodiscard]] std::string find_deadlock(std::span<const Schedule> schedules,
                                        std::span<const Meeting> meetings);

}  // namespace expedite::schedule
