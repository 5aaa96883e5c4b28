// A strategy's schedules as those of a small job, so that they can be verified whatever the number of
// devices.
#pragma once

#include <vector>

#include "expedite/plan/step_schedules.h"

namespace expedite::plan {

/// One rank for each unlike rank, in their order, as schedule::verify takes them. Ranks of a kind have the
/// same tasks, so a group's ranks are replaced by the kinds of the stages that it reaches: where those match,
/// are in order and cannot deadlock, all ranks are so. (Where a group has ranks of one kind alone, this asks
/// for more than is needed.)
[[nodiscard]] std::vector<schedule::Schedule> as_small_job(const StepSchedules& schedules);

}  // namespace expedite::plan
