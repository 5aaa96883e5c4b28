#include <algorithm>

#include "expedite/schedule/pipeline_kinds.h"

namespace expedite::schedule {

/// 1F1B in which stage s keeps s weight gradients back. It has p - s micro-batches under way in 1F1B, so that
/// every stage now holds the activations of p, as stage 0 does there; and the weight gradients kept back run
/// where the last input gradients are waited for.
std::vector<Action> zero_bubble_h1_order(const PipelineShape& shape, int stage) {
  const int m = shape.micro_batches;
  const int warm_up = std::min(shape.stages - 1 - stage, m);
  std::vector<Action> order;
  for (int f = 0; f < warm_up; ++f) {
    order.push_back({Phase::forward, 0, f});
  }
  for (int b = 0; b < m; ++b) {
    if (warm_up + b < m) {
      order.push_back({Phase::forward, 0, warm_up + b});
    }
    order.push_back({Phase::input_grad, 0, b});
    if (b >= stage) {
      order.push_back({Phase::weight_grad, 0, b - stage});
    }
  }
  for (int w = std::max(0, m - stage); w < m; ++w) {
    order.push_back({Phase::weight_grad, 0, w});
  }
  return order;
}

}  // namespace expedite::schedule
