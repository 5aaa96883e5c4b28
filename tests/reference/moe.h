// The experts of an MoE layer: every token is worked on by its k experts, and their results are summed by
// weight.
#pragma once

#include <vector>

#include "tests/reference/matrix.h"
#include "tests/reference/router.h"
#include "tests/reference/swiglu.h"

namespace expedite::reference {

/// x: [T, H]; one SwiGLU per expert. Returns [T, H].
[[nodiscard]] Matrix mixture(const Matrix& x, const Routing& routing,
                             const std::vector<SwigluWeights>& experts);

struct MixtureGradients {
  Matrix dx;        // [T, H], through the experts only
  Matrix dweights;  // [T, k], of the gate weights
};
/// Adds the gradients of the experts' weights.
[[nodiscard]] MixtureGradients mixture_backward(const Matrix& dy, const Matrix& x, const Routing& routing,
                                                const std::vector<SwigluWeights>& experts,
                                                const std::vector<SwigluGradients>& gradients);

}  // namespace expedite::reference
