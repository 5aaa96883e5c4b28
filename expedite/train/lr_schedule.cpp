#include "expedite/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace expedite::train {

double learning_rate(const LrSchedule& schedule, std::int64_t step) {
  const auto& [lr, min_lr, warmup_steps, steps] = schedule;
  if (step < warmup_steps) {
    return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  const std::int64_t last = steps - 1;
  if (step >= last) {
    return last > warmup_steps ? min_lr : lr;
  }
  const double progress = static_cast<double>(step - warmup_steps) / static_cast<double>(last - warmup_steps);
  return min_lr + 0.5 * (lr - min_lr) * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace expedite::train
