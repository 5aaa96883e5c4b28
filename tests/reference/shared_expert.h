// The shared expert of an MoE layer: a SwiGLU that every token passes through, weighed by a sigmoid in some
// models.
#pragma once

#include <span>

#include "tests/reference/matrix.h"
#include "tests/reference/swiglu.h"

namespace expedite::reference {

struct SharedExpertWeights {
  SwigluWeights expert;
  std::span<const double> gate;  // [H], or empty: the output is not weighed
};

struct SharedExpertGradients {
  SwigluGradients expert;
  std::span<double> gate;
};

/// y[t] = sigmoid(gate · x[t]) * swiglu(x[t]). x: [T, H] to [T, H].
[[nodiscard]] Matrix shared_expert(const Matrix& x, const SharedExpertWeights& weights);

/// Returns dx; adds the gradients of the weights.
[[nodiscard]] Matrix shared_expert_backward(const Matrix& dy, const Matrix& x,
                                            const SharedExpertWeights& weights,
                                            const SharedExpertGradients& gradients);

}  // namespace expedite::reference
