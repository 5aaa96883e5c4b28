// The training step that a configuration asks for, predicted from what `expedite probe` has measured.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "expedite/cost/cluster.h"
#include "expedite/cost/simulator.h"
#include "expedite/model/task_cost.h"
#include "expedite/train/config.h"
#include "expedite/train/measured_run.h"

namespace expedite::train {

/// The step that every rank of the cluster would run. What the configuration leaves to measurement is chosen
/// from the cluster's rates. Throws Error where train() would, and when the ranks do not fit.
[[nodiscard]] model::StepCase step_case(const TrainConfig& config, const cost::Cluster& cluster);

/// The same without measurements: what the configuration leaves to them is at its simplest.
[[nodiscard]] model::StepCase step_case(const TrainConfig& config, const comm::Placement& placement);

struct Prediction {
  std::vector<schedule::Schedule> schedules;  // by rank, as train() runs them
  cost::Simulation simulation;                // with events
  std::int64_t tokens = 0;                    // of all ranks
};

[[nodiscard]] Prediction predict(const model::StepCase& step, const cost::Cluster& cluster);

/// Of predictions of steps that differ in their experts' loads alone; `exposed` is of all ranks.
[[nodiscard]] StepTimes step_times(std::span<const Prediction> predictions);

}  // namespace expedite::train
