// The coarse builder of pipelines: one task per virtual stage, micro-batch and pass.
#pragma once

#include <cstdint>
#include <vector>

#include "expedite/schedule/pipeline_order.h"
#include "expedite/schedule/schedule.h"

namespace expedite::schedule {

struct CoarsePipeline {
  PipelineShape shape;
  // By part, per micro-batch; empty: none. Of what a forward keeps, what input gradients release and what
  // weight gradients release.
  std::vector<std::int64_t> kept_bytes = {};
  std::vector<std::int64_t> kept_for_weights_bytes = {};
};

/// The step of one stage, whose rank is `stage`, of `stage_order`: `stage` tasks forward, input_grad and
/// weight_grad; in pairs `paired_stage` tasks, which begin when both have what they need and send when both
/// are done, so that a pair takes the sum of what its three tasks are said to take. Sends and receives in
/// group "pp" bear the part that they are for (Piece::part). No gradient reduction, no optimizer.
/// Throws Error as stage_order() does, and when there are not as many sizes as parts.
[[nodiscard]] Schedule build_coarse_pipeline(const CoarsePipeline& pipeline, int stage);

}  // namespace expedite::schedule
