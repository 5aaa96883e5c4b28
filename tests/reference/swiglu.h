// The feed-forward network of a dense layer and of an expert: down(silu(gate(x)) * up(x)) (Shazeer, 2020).
#pragma once

#include <span>

#include "tests/reference/matrix.h"

namespace expedite::reference {

struct SwigluWeights {
  std::span<const double> gate;  // [F, H]
  std::span<const double> up;    // [F, H]
  std::span<const double> down;  // [H, F]
};

struct SwigluGradients {
  std::span<double> gate;
  std::span<double> up;
  std::span<double> down;
};

/// x: [T, H] to [T, H].
[[nodiscard]] Matrix swiglu(const Matrix& x, const SwigluWeights& weights);

/// Returns dx; adds the gradients of the weights.
[[nodiscard]] Matrix swiglu_backward(const Matrix& dy, const Matrix& x, const SwigluWeights& weights,
                                     const SwigluGradients& gradients);

}  // namespace expedite::reference
