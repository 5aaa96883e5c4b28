// Rotary position embedding in the half-split layout: elements i and i + R/2 of a head turn together, where R
// is how many of its first elements turn.
#pragma once

#include <cstdint>
#include <span>

#include "tests/reference/matrix.h"

namespace expedite::reference {

struct Rotary {
  std::vector<double> inverse_frequencies;  // [R / 2]
  double attention_factor = 1.0;            // multiplies cosine and sine
  std::int64_t head_dim = 0;                // D, at least R
};

/// x: [T, heads * D], token t at positions[t].
[[nodiscard]] Matrix rotate(const Matrix& x, std::span<const std::int64_t> positions, const Rotary& rotary);

/// The transposed map: the gradient of x from the gradient of rotate's result.
[[nodiscard]] Matrix rotate_backward(const Matrix& dy, std::span<const std::int64_t> positions,
                                     const Rotary& rotary);

}  // namespace expedite::reference
