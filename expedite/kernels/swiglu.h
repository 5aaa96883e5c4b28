// SwiGLU activation (Shazeer, 2020): silu(gate) * up.
#pragma once

#include "expedite/tensor/view.h"

namespace expedite::kernels {

/// y[R, F] = weights[r] * silu(gate_up[:, :F]) * gate_up[:, F:]. f32 or bf16, computed in fp32. weights:
/// f32 [R], or empty: all one. Weighting an expert's activation by its routing weight, as Megatron does,
/// weights what the expert returns, and no expert output need be kept for the weight's gradient.
void swiglu(ConstTensorView gate_up, ConstTensorView weights, TensorView y);
inline void swiglu(ConstTensorView gate_up, TensorView y) {
  swiglu(gate_up, {}, y);
}

/// dgate_up[R, 2F], and dweights f32 [R] or empty (not wanted), from dy[R, F]; dgate_up may be gate_up's
/// memory. Sums over F run in a fixed order: a row's results depend on that row alone.
void swiglu_backward(ConstTensorView dy, ConstTensorView gate_up, ConstTensorView weights,
                     TensorView dgate_up, TensorView dweights);
inline void swiglu_backward(ConstTensorView dy, ConstTensorView gate_up, TensorView dgate_up) {
  swiglu_backward(dy, gate_up, {}, dgate_up, {});
}

}  // namespace expedite::kernels
