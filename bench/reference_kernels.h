// Kernels in double precision, slow and written for reading: what the driver of `expedite bench kernels`
// holds kernels against, beside those of tests/reference.
#pragma once

#include <cstdint>
#include <span>

#include "tests/reference/matrix.h"

namespace expedite::bench {

[[nodiscard]] reference::Matrix transposed(const reference::Matrix& x);

/// a[M, K] · b[N, K]ᵀ, its rows divided among the threads of the caller's team.
[[nodiscard]] reference::Matrix product(const reference::Matrix& a, const reference::Matrix& b);

/// activation = (up + up_offset) * gate * sigmoid(alpha * gate) of clamped gate and up (swiglu.h).
struct Glu {
  double alpha = 1.0;
  double limit = 0.0;  // 0: none
  double up_offset = 0.0;
};
/// gate_up: [R, 2F]; weights: [R] or empty. Returns [R, F].
[[nodiscard]] reference::Matrix glu(const reference::Matrix& gate_up, std::span<const double> weights,
                                    const Glu& options);
struct GluGradients {
  reference::Matrix dgate_up;  // [R, 2F]
  reference::Matrix dweights;  // [R, 1]
};
[[nodiscard]] GluGradients glu_backward(const reference::Matrix& dy, const reference::Matrix& gate_up,
                                        std::span<const double> weights, const Glu& options);

struct CrossEntropy {
  double loss = 0.0;
  reference::Matrix dhidden;  // [T, H]
  reference::Matrix dweight;  // [V, H]
};
/// The sum over tokens of -log softmax(hidden · weightᵀ)[target], and gradients times `scale`.
[[nodiscard]] CrossEntropy cross_entropy(const reference::Matrix& hidden, const reference::Matrix& weight,
                                         std::span<const std::int32_t> targets, double scale);

}  // namespace expedite::bench
