// The orders behind stage_order(), one per kind and file, with a line each in pipeline_order.cpp. Shapes are
// legal.
#pragma once

#include <vector>

#include "expedite/schedule/pipeline_order.h"

namespace expedite::schedule {

[[nodiscard]] std::vector<Action> one_f_one_b_order(const PipelineShape& shape, int stage);
[[nodiscard]] std::vector<Action> interleaved_order(const PipelineShape& shape, int stage);
[[nodiscard]] std::vector<Action> zero_bubble_h1_order(const PipelineShape& shape, int stage);
[[nodiscard]] std::vector<Action> dualpipe_order(const PipelineShape& shape, int stage);
[[nodiscard]] std::vector<Action> adaptive_pipe_order(const PipelineShape& shape, int stage);

/// Interleaved schedules take p micro-batches through one virtual stage, then the same through the next. The
/// `index`th forward, and the `index`th backward, of a stage.
[[nodiscard]] Action interleaved_forward(const PipelineShape& shape, int index);
[[nodiscard]] Action interleaved_backward(const PipelineShape& shape, Phase phase, int index);

}  // namespace expedite::schedule
