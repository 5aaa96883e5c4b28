// Rotary position embedding (Su et al., 2021), in the layouts that Hugging Face checkpoints use.
#pragma once

#include <cstdint>
#include <span>

#include "expedite/tensor/view.h"

namespace expedite::kernels {

enum class Rotation : std::uint8_t { forward, backward };  // backward rotates the other way: the gradient

/// Which elements of a head turn together: (i, i + R/2), as in most checkpoints, or (2i, 2i + 1), as in
/// DeepSeek's. Either way each stays where it is: scores do not depend on an order that queries and keys
/// share.
enum class RotaryPairs : std::uint8_t { halves, neighbours };

/// Where in a head its R elements lie that turn.
struct RotaryLayout {
  RotaryPairs pairs = RotaryPairs::halves;
  std::int64_t first = 0;  // elements before them, which stay as they are (DeepSeek's queries have some)
};

/// x: [T, heads, D], rotated in place; rows may be strided (a slice of a wider matrix's columns); f32 or
/// bf16. positions: [T]. inverse_frequencies: [R / 2] with R even, layout.first + R <= D; pair i of token t
/// turns by positions[t] * inverse_frequencies[i], and elements behind R stay as they are. `attention_factor`
/// multiplies cosine and sine (1 unless the model scales its rotary embedding).
void rotary(TensorView x, std::span<const std::int32_t> positions, std::span<const float> inverse_frequencies,
            float attention_factor, Rotation direction, const RotaryLayout& layout = {});

}  // namespace expedite::kernels
