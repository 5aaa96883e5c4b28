// AdamW (Loshchilov & Hutter, 2019) on fp32 master weights, and the global gradient norm.
#pragma once

#include <cstdint>

#include "expedite/tensor/view.h"

namespace expedite::kernels {

struct AdamwOptions {
  float learning_rate = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float epsilon = 1e-8F;
  float weight_decay = 0.1F;
  std::int64_t step = 1;        // counted from 1, for the bias corrections
  float gradient_scale = 1.0F;  // multiplies the gradient first: the clipping coefficient
};

/// One step over n elements. master, exp_avg, exp_avg_sq, gradient: f32 [n]; weight: bf16 or f32 [n], written
/// as the rounded master. The gradient is set to zero on the way when `zero_gradient`.
void adamw(const AdamwOptions& options, TensorView master, TensorView exp_avg, TensorView exp_avg_sq,
           TensorView gradient, TensorView weight, bool zero_gradient);

/// Sum of squares of f32 [n], in double, in an order that does not depend on the number of threads.
/// NaN and infinity carry through, so that a caller sees them in the norm.
[[nodiscard]] double sum_of_squares(ConstTensorView x);

}  // namespace expedite::kernels
