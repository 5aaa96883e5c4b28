// Softmax of a row and its gradient.
#pragma once

#include <span>
#include <vector>

namespace expedite::reference {

[[nodiscard]] std::vector<double> softmax(std::span<const double> logits);

/// d logits from d probabilities.
[[nodiscard]] std::vector<double> softmax_backward(std::span<const double> dprobabilities,
                                                   std::span<const double> probabilities);

/// log(sum(exp(logits))).
[[nodiscard]] double log_sum_exp(std::span<const double> logits);

}  // namespace expedite::reference
