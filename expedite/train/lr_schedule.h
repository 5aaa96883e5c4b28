// The learning rate as a pure function of the step: linear warm-up, then half a cosine down to a floor.
#pragma once

#include <cstdint>

namespace expedite::train {

struct LrSchedule {
  double lr = 0.0;      // at the end of the warm-up
  double min_lr = 0.0;  // at the last step and beyond
  std::int64_t warmup_steps = 0;
  std::int64_t steps = 0;  // of the whole run
};

/// The rate of step `step`, counted from 0. Step s < W of a warm-up of W steps gets lr * (s + 1) / W (never
/// 0); step W gets lr; step steps - 1 gets min_lr. Cosine decay as in Loshchilov & Hutter, SGDR, ICLR 2017.
[[nodiscard]] double learning_rate(const LrSchedule& schedule, std::int64_t step);

}  // namespace expedite::train
