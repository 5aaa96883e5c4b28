// The language-model head fused with its loss: logits are made, used and dropped a block of rows at a time,
// so the fp32 logits of a batch are never held.
#pragma once

#include <cstdint>
#include <span>

#include "expedite/tensor/memory_pool.h"
#include "expedite/tensor/view.h"

namespace expedite::kernels {

inline constexpr std::int32_t kIgnoredTarget = -1;  // a token without a target: no loss, no gradient

struct CrossEntropyGradients {
  float scale = 1.0F;  // d (training loss) / d (loss sum), for example 1 / tokens in the global batch
  TensorView dhidden;  // [T, H], hidden's type, overwritten
  TensorView dweight;  // [V, H] f32, added to
};

/// Returns the sum over targets of -log softmax(hidden · weightᵀ)[target]. hidden: [T, H], weight: [V, H],
/// one type. targets: [T]. Gradients are written unless `gradients` is null. Throws Error naming a target
/// outside [0, V).
double linear_cross_entropy(ConstTensorView hidden, ConstTensorView weight,
                            std::span<const std::int32_t> targets, const CrossEntropyGradients* gradients,
                            MemoryPool& pool);

}  // namespace expedite::kernels
