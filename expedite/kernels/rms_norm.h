// Root-mean-square normalisation of rows (Zhang & Sennrich, 2019), over the hidden size or over each head.
#pragma once

#include "expedite/tensor/view.h"

namespace expedite::kernels {

/// y = x / sqrt(mean(x²) + epsilon) * weight over the last dimension.
/// x, y: [T, H], or [T, G, H] to normalise each of G heads on its own; f32 or bf16; rows may be strided; y
/// may be x. weight: [H], x's type. inverse_rms: f32 [T] or [T, G], kept for backward. The mean is taken in
/// fp32, and the normalised row is not rounded before it is multiplied by the weight.
void rms_norm(ConstTensorView x, ConstTensorView weight, float epsilon, TensorView y, TensorView inverse_rms);

/// dx (+)= and dweight += (f32 [H]). dx has x's type and shape and may be dy's memory when not accumulating.
/// The sum over rows is taken in an order that does not depend on the number of threads.
void rms_norm_backward(ConstTensorView dy, ConstTensorView x, ConstTensorView weight,
                       ConstTensorView inverse_rms, TensorView dx, bool accumulate_dx, TensorView dweight);

}  // namespace expedite::kernels
