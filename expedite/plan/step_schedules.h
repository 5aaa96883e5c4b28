// A strategy as schedules: what every unlike rank of it does in a step.
#pragma once

#include <vector>

#include "expedite/plan/step_cost.h"
#include "expedite/schedule/pipeline_step.h"

namespace expedite::plan {

/// Ranks of a stage that do the same in the same time. With an uneven load of experts the busiest rank of
/// every expert-parallel group is one kind and its others, with the mean of what is left, are another.
struct RankKind {
  int stage = 0;
  bool busiest = true;
  int multiplicity = 1;
};

struct StepSchedules {
  schedule::PipelineShape shape;
  std::vector<int> bounds;                    // of PipelineSpec
  std::vector<RankKind> kinds;                // stage by stage, the busiest first
  std::vector<schedule::Schedule> schedules;  // of one rank of each kind

  /// Layers on each stage, wherever its virtual stages have them; multi-token prediction is left out.
  [[nodiscard]] Stages layers_of_stages(const ModelConfig& model) const;
};

/// Bounds of the virtual stages, as PipelineSpec::bounds, over embedding, layers, multi-token prediction
/// layers and head. Layers are placed so that the dearest part is as cheap as possible, or evenly by number,
/// as the software does.
[[nodiscard]] std::vector<int> layer_bounds(const CostContext& context, const Strategy& strategy,
                                            const PieceTimes& pieces);

/// Ranks are numbered stage by stage, in a stage with tp innermost, then cp, then dp; an expert-parallel
/// group is ep * etp neighbours. Layers are placed by layer_bounds. Without chunks, and where no other
/// micro-batch hides them, nothing runs under all-to-alls, as in the programs that constants were fitted to.
/// `pieces`: piece_times of the strategy, which must be legal. Throws Error naming the knob that cannot be
/// built, and what can.
[[nodiscard]] StepSchedules build_schedules(const CostContext& context, const Strategy& strategy,
                                            const PieceTimes& pieces);

}  // namespace expedite::plan
