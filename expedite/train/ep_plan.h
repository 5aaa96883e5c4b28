// From the configuration's parallel.ep_plan to the plan that a step's schedule is built from.
#pragma once

#include "expedite/architecture/model_config.h"
#include "expedite/comm/process_grid.h"
#include "expedite/cost/cluster.h"
#include "expedite/schedule/ep_plan.h"
#include "expedite/train/config.h"

namespace expedite::train {

/// As the configuration says; what it leaves to measurement is at its simplest: alltoall, one chunk.
[[nodiscard]] schedule::EpPlan plan_as_asked(const TrainConfig& config);

/// Both sizes of chunks given: the number wins, with a warning. Dispatcher or number `auto`: a short look at
/// the links, and for the number at the experts' products, chooses, and the log says why. Collective over the
/// grid's world; the same on all ranks.
[[nodiscard]] schedule::EpPlan ep_plan(const TrainConfig& config, const ModelConfig& model,
                                       const comm::ProcessGrid& grid, int threads);

/// The same for ranks that do not run: what is left to measurement is chosen from what was measured of the
/// cluster.
[[nodiscard]] schedule::EpPlan ep_plan(const TrainConfig& config, const ModelConfig& model,
                                       const comm::Placement& placement, const cost::Cluster& cluster);

}  // namespace expedite::train
