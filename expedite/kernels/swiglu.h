// SwiGLU activation (Shazeer, 2020): silu(gate) * up.
#pragma once

#include "expedite/tensor/view.h"

namespace expedite::kernels {

/// y[R, F] = silu(gate_up[:, :F]) * gate_up[:, F:]. f32 or bf16, computed in fp32.
void swiglu(ConstTensorView gate_up, TensorView y);

/// dgate_up[R, 2F] from dy[R, F]; dgate_up may be gate_up's memory.
void swiglu_backward(ConstTensorView dy, ConstTensorView gate_up, TensorView dgate_up);

}  // namespace expedite::kernels
