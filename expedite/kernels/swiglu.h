// SwiGLU activation (Shazeer, 2020): silu(gate) * up, and the clamped one of gpt-oss.
#pragma once

#include <limits>

#include "expedite/tensor/view.h"

namespace expedite::kernels {

/// activation = (up + up_offset) * gate * sigmoid(alpha * gate), where gate is at most `limit` and up within
/// +-limit. By default SwiGLU; gpt-oss (OpenAI, 2025, arXiv:2508.10925) has alpha 1.702, limit 7,
/// up_offset 1.
struct GluOptions {
  float alpha = 1.0F;                                    // from 1e-6 on
  float limit = std::numeric_limits<float>::infinity();  // above 0
  float up_offset = 0.0F;

  [[nodiscard]] bool operator==(const GluOptions& other) const = default;
};

/// y[R, F] = weights[r] * activation, with gate = gate_up[:, :F] and up = gate_up[:, F:]. f32 or bf16,
/// computed in fp32. weights: f32 [R], or empty: all one. Weighting an expert's activation by its routing
/// weight, as Megatron does, weights what the expert returns, and no expert output need be kept for the
/// weight's gradient.
void swiglu(ConstTensorView gate_up, ConstTensorView weights, TensorView y, const GluOptions& options = {});
inline void swiglu(ConstTensorView gate_up, TensorView y) {
  swiglu(gate_up, {}, y);
}

/// dgate_up[R, 2F], and dweights f32 [R] or empty (not wanted), from dy[R, F]; dgate_up may be gate_up's
/// memory. Sums over F run in a fixed order: a row's results depend on that row alone. What was clamped has a
/// gradient of zero; what lies on the limit was not.
void swiglu_backward(ConstTensorView dy, ConstTensorView gate_up, ConstTensorView weights,
                     TensorView dgate_up, TensorView dweights, const GluOptions& options = {});
inline void swiglu_backward(ConstTensorView dy, ConstTensorView gate_up, TensorView dgate_up) {
  swiglu_backward(dy, gate_up, {}, dgate_up, {});
}

}  // namespace expedite::kernels
