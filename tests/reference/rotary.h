// Rotary position embedding in the half-split layout: elements i and i + D/2 of a head turn together.
#pragma once

#include <cstdint>
#include <span>

#include "tests/reference/matrix.h"

namespace expedite::reference {

struct Rotary {
  std::vector<double> inverse_frequencies;  // [D / 2]
  double attention_factor = 1.0;            // multiplies cosine and sine
};

/// x: [T, heads * D], token t at positions[t].
[[nodiscard]] Matrix rotate(const Matrix& x, std::span<const std::int64_t> positions, const Rotary& rotary);

/// The transposed map: the gradient of x from the gradient of rotate's result.
[[nodiscard]] Matrix rotate_backward(const Matrix& dy, std::span<const std::int64_t> positions,
                                     const Rotary& rotary);

}  // namespace expedite::reference
