// Moving token rows into expert order and back: the permute and unpermute of an MoE layer.
#pragma once

#include "expedite/tensor/view.h"

namespace expedite::kernels {

/// dst[i] = src[index[i]]; a negative index gives a row of zeros. index: i32 [R]; src, dst: one type, any
/// dtype.
void gather_rows(ConstTensorView src, ConstTensorView index, TensorView dst);

/// dst[t] = (residual[t] +) sum over j of weights[t, j] * rows[position[t, j]], in fp32 and in the order of
/// j. position: i32 [T, k], negative: no such row; weights: f32 [T, k] or empty (all one); residual: [T, H]
/// or empty, may be dst. rows, residual, dst: one type, f32 or bf16.
void unpermute(ConstTensorView rows, ConstTensorView position, ConstTensorView weights,
               ConstTensorView residual, TensorView dst);

/// drows[position[t, j]] = weights[t, j] * dy[t], and dweights[t, j] = dy[t] · rows[position[t, j]].
/// Rows of drows that no position names are left alone.
void unpermute_backward(ConstTensorView dy, ConstTensorView rows, ConstTensorView position,
                        ConstTensorView weights, TensorView drows, TensorView dweights);

}  // namespace expedite::kernels
