// Rotary position embedding (Su et al., 2021), in the half-split layout that Hugging Face checkpoints use.
#pragma once

#include <cstdint>
#include <span>

#include "expedite/tensor/view.h"

namespace expedite::kernels {

enum class Rotation : std::uint8_t { forward, backward };  // backward rotates the other way: the gradient

/// x: [T, heads, D], rotated in place; rows may be strided; f32 or bf16. positions: [T]. inverse_frequencies:
/// [R / 2] with R <= D even; pair (i, i + R/2) of token t turns by positions[t] * inverse_frequencies[i], and
/// elements from R on stay as they are.
/// `attention_factor` multiplies cosine and sine (1 unless the model scales its rotary embedding).
void rotary(TensorView x, std::span<const std::int32_t> positions, std::span<const float> inverse_frequencies,
            float attention_factor, Rotation direction);

}  // namespace expedite::kernels
