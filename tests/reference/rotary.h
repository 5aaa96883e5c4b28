// Rotary position embedding of a part of each head: R elements turn in pairs, the others stay.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/reference/matrix.h"

namespace expedite::reference {

struct Rotary {
  std::vector<double> inverse_frequencies;  // [R / 2], of each pair
  double attention_factor = 1.0;            // multiplies cosine and sine
  std::int64_t head_dim = 0;                // D
  std::int64_t first = 0;                   // of a head's elements that turn; first + R is at most D
  bool neighbours = false;                  // of these, 2i and 2i + 1 turn together, else i and i + R/2
};

/// x: [T, heads * D], token t at positions[t].
[[nodiscard]] Matrix rotate(const Matrix& x, std::span<const std::int64_t> positions, const Rotary& rotary);

/// The transposed map: the gradient of x from the gradient of rotate's result.
[[nodiscard]] Matrix rotate_backward(const Matrix& dy, std::span<const std::int64_t> positions,
                                     const Rotary& rotary);

}  // namespace expedite::reference
