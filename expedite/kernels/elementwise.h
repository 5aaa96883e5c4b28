// Plain elementwise helpers: fill, convert, add.
#pragma once

#include "expedite/tensor/view.h"

namespace expedite::kernels {

/// All elements zero. Rows may be strided.
void fill_zero(TensorView x);

/// dst = src, between f32 and bf16 in either direction or within one type; same shape; rows may be strided.
void convert(ConstTensorView src, TensorView dst);

/// dst += src, in fp32 and rounded once to dst's type. Types: f32 or bf16, they may differ.
void add(ConstTensorView src, TensorView dst);

/// x[T, N] += bias[N] (one type); the bias of a linear layer.
void add_bias(ConstTensorView bias, TensorView x);

/// dbias[N] += sum over rows of dy[T, N]; dbias f32; in an order that does not depend on the number of
/// threads.
void bias_backward(ConstTensorView dy, TensorView dbias);

}  // namespace expedite::kernels
