// The feed-forward network of a dense layer and of an expert: down(silu(gate(x)) * up(x)) (Shazeer, 2020).
#pragma once

#include <optional>
#include <span>

#include "tests/reference/matrix.h"

namespace expedite::reference {

/// gate is at most `limit` and up at most as far from 0; then gate * sigmoid(alpha * gate) * (up + 1) is what
/// `down` gets.
struct Clamp {
  double alpha = 1.0;
  double limit = 0.0;
};

struct SwigluWeights {
  std::span<const double> gate;            // [F, H]
  std::span<const double> up;              // [F, H]
  std::span<const double> down;            // [H, F]
  std::span<const double> gate_bias = {};  // [F], or empty, as are the others
  std::span<const double> up_bias = {};    // [F]
  std::span<const double> down_bias = {};  // [H]
  std::optional<Clamp> clamp = {};
};

struct SwigluGradients {
  std::span<double> gate;
  std::span<double> up;
  std::span<double> down;
  std::span<double> gate_bias = {};
  std::span<double> up_bias = {};
  std::span<double> down_bias = {};
};

/// x: [T, H] to [T, H].
[[nodiscard]] Matrix swiglu(const Matrix& x, const SwigluWeights& weights);

/// Returns dx; adds the gradients of the weights.
[[nodiscard]] Matrix swiglu_backward(const Matrix& dy, const Matrix& x, const SwigluWeights& weights,
                                     const SwigluGradients& gradients);

}  // namespace expedite::reference
