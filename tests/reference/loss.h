// The losses of a language model, each with its gradient: next token, load balance, router z-loss.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/reference/matrix.h"
#include "tests/reference/router.h"

namespace expedite::reference {

struct LossAndGradient {
  double loss = 0.0;
  Matrix gradient;  // of the logits
};

/// Mean over all tokens that have a successor in their sequence of -log p(successor); 0 where there is none.
/// logits: [T, V]; sequence s is tokens [bounds[s], bounds[s + 1]).
[[nodiscard]] LossAndGradient next_token_loss(const Matrix& logits, std::span<const int> tokens,
                                              std::span<const std::int64_t> bounds);

/// A loss on the routers of several layers.
struct RouterLoss {
  double loss = 0.0;
  std::vector<Matrix> gradients;  // of each layer's router logits, [T, E]
};

/// Hugging Face's load_balancing_loss_func, after the Switch ModelConfig (Fedus et al., 2021), over the
/// tokens of all layers together: E * sum over e of f_e * P_e, where f_e is expert e's share of the tokens
/// (the shares sum to k) and P_e its mean score. f_e has no gradient. 0 without layers or tokens.
[[nodiscard]] RouterLoss load_balance_loss(const std::vector<const Routing*>& layers,
                                           const RouterShape& shape);

/// The same loss on each sequence and layer alone; the mean over layers, and over sequences by their tokens.
[[nodiscard]] RouterLoss sequence_balance_loss(const std::vector<const Routing*>& layers,
                                               std::span<const std::int64_t> bounds,
                                               const RouterShape& shape);

/// Mean over the tokens of all layers of log(sum(exp(router logits)))² (ST-MoE, Zoph et al., 2022).
[[nodiscard]] RouterLoss z_loss(const std::vector<const Routing*>& layers);

}  // namespace expedite::reference
