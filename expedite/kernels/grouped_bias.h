// Biases of a stack of experts, each added to its own block of rows of a grouped product.
#pragma once

#include <span>

#include "expedite/tensor/view.h"

namespace expedite::kernels {

/// y[e] += w · bias[e], a row each: y[e][r] += w[e][r] * bias[e]. bias: [E, N], f32 or bf16; y[e]: [rows of
/// e, N], f32 or bf16, strided rows allowed; weights[e]: f32 [rows of e], or no weights at all: all one.
/// Added in fp32 and rounded once. A down projection whose rows were weighted before it (swiglu.h) needs the
/// weights, since what an expert returns is weighted as a whole; a gate and up projection has none.
///
/// Rows that pad a block (grouped_matmul.h) are rows as any: of weight zero they stay as they are, and
/// without weights they become the bias. That harms nothing: what is made of them is weighted by zero, and
/// gradients of padding rows are zero, so that they add nothing to gradients of weights or biases.
void grouped_bias(ConstTensorView bias, std::span<const ConstTensorView> weights,
                  std::span<const TensorView> y);

/// The gradient of what a row was weighted by: dweights[e][r] += dy[e][r] · bias[e], f32. The activation has
/// part in that gradient too, which swiglu_backward writes: first that, then this. A row's result depends on
/// that row alone.
void grouped_bias_input_grad(std::span<const ConstTensorView> dy, ConstTensorView bias,
                             std::span<const TensorView> dweights);

/// dbias[e] += the sum over rows of w[e][r] * dy[e][r]; f32 [E, N]; weights as above. In fp32 and an order
/// that depends neither on the number of threads nor on rows of zeros behind the others.
void grouped_bias_weight_grad(std::span<const ConstTensorView> dy, std::span<const ConstTensorView> weights,
                              TensorView dbias);

}  // namespace expedite::kernels
