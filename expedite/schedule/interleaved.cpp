#include <algorithm>

#include "expedite/schedule/pipeline_kinds.h"

namespace expedite::schedule {

Action interleaved_forward(const PipelineShape& shape, int index) {
  const int round = shape.stages * shape.virtual_stages;
  return {Phase::forward, index % round / shape.stages, index / round * shape.stages + index % shape.stages};
}

Action interleaved_backward(const PipelineShape& shape, Phase phase, int index) {
  const Action forward = interleaved_forward(shape, index);
  return {phase, shape.virtual_stages - 1 - forward.virtual_stage, forward.micro_batch};
}

std::vector<Action> interleaved_order(const PipelineShape& shape, int stage) {
  const int total = shape.micro_batches * shape.virtual_stages;
  // With one round of micro-batches nothing is gained by a backward before the last forward.
  const int warm_up =
      shape.micro_batches == shape.stages
          ? total
          : std::min(2 * (shape.stages - 1 - stage) + (shape.virtual_stages - 1) * shape.stages, total);
  std::vector<Action> order;
  order.reserve(2 * static_cast<std::size_t>(total));
  for (int f = 0; f < warm_up; ++f) {
    order.push_back(interleaved_forward(shape, f));
  }
  for (int b = 0; b < total; ++b) {
    if (warm_up + b < total) {
      order.push_back(interleaved_forward(shape, warm_up + b));
    }
    order.push_back(interleaved_backward(shape, Phase::backward, b));
  }
  return order;
}

}  // namespace expedite::schedule
