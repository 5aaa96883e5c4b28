#include <algorithm>

#include "expedite/schedule/pipeline_kinds.h"

namespace expedite::schedule {

std::vector<Action> one_f_one_b_order(const PipelineShape& shape, int stage) {
  const int m = shape.micro_batches;
  const int warm_up = std::min(shape.stages - 1 - stage, m);
  std::vector<Action> order;
  order.reserve(2 * static_cast<std::size_t>(m));
  for (int f = 0; f < warm_up; ++f) {
    order.push_back({Phase::forward, 0, f});
  }
  for (int b = 0; b < m; ++b) {
    if (warm_up + b < m) {
      order.push_back({Phase::forward, 0, warm_up + b});
    }
    order.push_back({Phase::backward, 0, b});
  }
  return order;
}

}  // namespace expedite::schedule
