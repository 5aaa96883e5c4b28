// What compare_with_baseline() found, for people: a table, and whether both learned the same.
#pragma once

#include <string>

#include "expedite/train/baseline_comparison.h"

namespace expedite::train {

/// How far apart the two are, relative to the baseline.
struct LossDifference {
  double first_loss = 0.0;      // of the first step: the forward pass of the same weights
  double first_gradient = 0.0;  // its gradient norm: the backward pass of the same weights
  double curve = 0.0;           // of the loss, the mean of all steps' absolute differences
};
/// NaN where a loss is not finite; zeros without a step.
[[nodiscard]] LossDifference loss_difference(const Comparison& comparison);

/// What rounding alone may make of it.
/// The first step: a loss of one dispatcher has the same bits whatever its chunks; dispatchers differ by
/// where they round what experts return; gradients are summed in another order. The curve: AdamW's first
/// steps are as large for a small gradient as for a large one, so the last bit of a gradient near zero
/// becomes a whole step of a weight, which the next steps amplify, in f32 as in bf16 (docs/correctness.md).
[[nodiscard]] LossDifference loss_tolerance(const Comparison& comparison);

/// False also where a loss is not finite.
[[nodiscard]] bool losses_agree(const Comparison& comparison);

/// Several lines, each ended. Without a step after those to warm up, one line that says so.
[[nodiscard]] std::string comparison_table(const Comparison& comparison);

}  // namespace expedite::train
