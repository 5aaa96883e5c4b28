#include <algorithm>

#include "expedite/schedule/pipeline_kinds.h"

namespace expedite::schedule {

/// The interleaved order with one forward more before the first backward, so that in the steady state the
/// forward and the backward of a pair never need each other. (Also with one virtual stage, where 1F1B's
/// warm-up would be too short: in pairs a micro-batch moves one stage per pair, there and back.) Outside of
/// pairs a gradient goes on before the weight gradients, which fill the wait for the next one.
std::vector<Action> adaptive_pipe_order(const PipelineShape& shape, int stage) {
  const int total = shape.micro_batches * shape.virtual_stages;
  const int warm_up =
      std::min(2 * (shape.stages - 1 - stage) + (shape.virtual_stages - 1) * shape.stages + 1, total);
  std::vector<Action> order;
  order.reserve(2 * static_cast<std::size_t>(total));
  for (int f = 0; f < warm_up; ++f) {
    order.push_back(interleaved_forward(shape, f));
  }
  for (int b = 0; b < total; ++b) {
    if (warm_up + b < total) {
      order.push_back(interleaved_forward(shape, warm_up + b));
      order.push_back(interleaved_backward(shape, Phase::backward, b));
      order[order.size() - 2].paired = order.back().paired = true;
    } else {
      order.push_back(interleaved_backward(shape, Phase::input_grad, b));
      order.push_back(interleaved_backward(shape, Phase::weight_grad, b));
    }
  }
  return order;
}

}  // namespace expedite::schedule
