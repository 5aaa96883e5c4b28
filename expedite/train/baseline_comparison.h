// What overlap brings to a run: its model and a baseline that overlaps nothing, trained step by step by
// turns.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "expedite/base/row_traffic.h"
#include "expedite/comm/process_grid.h"
#include "expedite/schedule/ep_plan.h"
#include "expedite/train/config.h"

namespace expedite::train {

struct ComparedStep {
  double loss = 0.0;
  double gradient_norm = 0.0;
  double seconds = 0.0;                // on rank 0
  double exposed_communication = 0.0;  // fraction of the step, the mean of all ranks
  RowTraffic rows;                     // of all ranks
};

struct Contender {
  schedule::EpPlan plan;
  std::vector<ComparedStep> steps;
  std::optional<double> validation_bits_per_byte;  // after the last step
};

struct Comparison {
  DType dtype = DType::bf16;
  std::int64_t tokens = 0;   // of a step, all ranks
  std::int64_t warm_up = 0;  // first steps, whose times do not count
  Contender baseline;
  Contender overlapped;
};

struct ComparisonOptions {
  std::int64_t steps = 20;             // of each contender, after those to warm up
  std::optional<int> live_width = {};  // as TrainOptions::live_width
};

/// The plan that hides and shrinks nothing: one chunk, all-to-alls of a row per expert copy.
[[nodiscard]] TrainConfig::EpPlan baseline_plan();

/// Trains a new model as `config` says and another with baseline_plan() instead: the same weights to start
/// with, the same sequences; in each step one after the other, first the one and then the other first. So
/// both see the same of what else the machine does. Appends every step to comparison.jsonl in the run's
/// folder; shows progress. Ends early, with what there is, when a rank gets a signal to stop. Collective over
/// the grid's world; rank 0's result is whole. Errors end the job as those of train() do.
[[nodiscard]] Comparison compare_with_baseline(const TrainConfig& config, const comm::ProcessGrid& grid,
                                               const ComparisonOptions& options);

}  // namespace expedite::train
