// The losses that keep experts evenly loaded, as sums over one layer's tokens of one micro-batch. Every sum
// is divided by the tokens of the whole step and the number of sparse layers, so that the loss of a step does
// not depend on how its sequences are spread over ranks and micro-batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "expedite/model/moe_layer.h"

namespace expedite::model {

/// Over what the load-balancing loss E · Σ_e f_e P_e is taken, where f_e is the share of tokens that chose
/// expert e (k in sum) and P_e its mean score:
enum class AuxLoss : std::uint8_t {
  none,
  sequence,  // every sequence and layer alone (DeepSeek-V3, 2024, eq. 17-20), weighted by tokens
  batch,  // all tokens of a micro-batch on all ranks and all sparse layers together, as Hugging Face computes
          // it
};

struct BalanceOptions {
  AuxLoss aux_loss = AuxLoss::none;
  double aux_coefficient = 0.0;
  double z_coefficient = 0.0;
};

/// Σ over sequences of their length times their loss.
[[nodiscard]] double sequence_aux_loss(const RouterActivations& router, std::span<const std::int64_t> bounds);
/// Adds `scale` times its gradient to grad_logits, f32 [T, E].
void sequence_aux_backward(const ModelConfig& config, const RouterActivations& router,
                           std::span<const std::int64_t> bounds, double scale, TensorView grad_logits);

/// Tokens times E · Σ_e f_e P_e, where `shares` are the f of the whole batch and P is over this layer's
/// tokens here.
[[nodiscard]] double batch_aux_loss(const RouterActivations& router, std::span<const double> shares);
void batch_aux_backward(const ModelConfig& config, const RouterActivations& router,
                        std::span<const double> shares, double scale, TensorView grad_logits);

}  // namespace expedite::model
