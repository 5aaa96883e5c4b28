// What compare_with_baseline() found, for people: a table, and whether both learned the same.
#pragma once

#include <string>

#include "expedite/train/baseline_comparison.h"

namespace expedite::train {

/// How far the losses of the two are apart, each relative to the baseline's. NaN where a loss is not finite.
struct LossDifference {
  double first = 0.0;    // in the first step: the forward pass of the same weights
  double largest = 0.0;  // in any step, and of the validation after the last
};
[[nodiscard]] LossDifference loss_difference(const Comparison& comparison);

/// What rounding alone may make of it.
/// The first step: a loss of one dispatcher has the same bits whatever its chunks; dispatchers differ by
/// where they round what experts return. Later steps: gradients are summed in another order, AdamW's first
/// steps are as large for a small gradient as for a large one, and so the last bit of a gradient near zero
/// becomes a whole step of a weight, which the next steps amplify.
[[nodiscard]] LossDifference loss_tolerance(const Comparison& comparison);

/// False also where a loss is not finite.
[[nodiscard]] bool losses_agree(const Comparison& comparison);

/// Several lines, each ended. Without a step after those to warm up, one line that says so.
[[nodiscard]] std::string comparison_table(const Comparison& comparison);

}  // namespace expedite::train
