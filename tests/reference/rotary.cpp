#include "tests/reference/rotary.h"

#include <cmath>

namespace expedite::reference {
namespace {

Matrix turn(const Matrix& x, std::span<const std::int64_t> positions, const Rotary& rotary,
            double direction) {
  const auto half = static_cast<std::int64_t>(rotary.inverse_frequencies.size());
  Matrix y = x;
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t head = 0; head < x.columns; head += rotary.head_dim) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(positions[t]) * rotary.inverse_frequencies[i];
        const double cosine = std::cos(angle) * rotary.attention_factor;
        const double sine = std::sin(angle) * rotary.attention_factor * direction;
        const std::int64_t one = head + rotary.first + (rotary.neighbours ? 2 * i : i);
        const std::int64_t other = one + (rotary.neighbours ? 1 : half);
        y(t, one) = x(t, one) * cosine - x(t, other) * sine;
        y(t, other) = x(t, other) * cosine + x(t, one) * sine;
      }
    }
  }
  return y;
}

}  // namespace

Matrix rotate(const Matrix& x, std::span<const std::int64_t> positions, const Rotary& rotary) {
  return turn(x, positions, rotary, 1.0);
}

Matrix rotate_backward(const Matrix& dy, std::span<const std::int64_t> positions, const Rotary& rotary) {
  return turn(dy, positions, rotary, -1.0);
}

}  // namespace expedite::reference
