// Matrix products, through oneDNN with primitives kept per shape, or widened to f32 (bf16_products.h).
#pragma once

#include <span>

#include "expedite/tensor/view.h"

namespace expedite::kernels {

struct MatmulOptions {
  bool transpose_a = false;  // a is stored [K, M]
  bool transpose_b = false;  // b is stored [N, K], as Hugging Face stores linear weights
  bool accumulate = false;   // dst += instead of dst =
};

struct MatmulOperands {
  ConstTensorView a;
  ConstTensorView b;
  TensorView dst;
};

/// dst[M, N] = op(a)[M, K] · op(b)[K, N], accumulated in fp32.
/// a and b: both f32 or both bf16, rows may be strided; dst: f32 or a's type (accumulate wants f32).
/// Any of M, N, K may be zero (K = 0 gives zeros). Throws Error on shapes or types that do not fit.
/// Runs on the calling thread's OpenMP team. Thread-safe. bf16 is multiplied as bf16_ways() says. For a given (N, K, types) a row of dst does not
/// depend, bit for bit, on M when `transpose_a` is false.
void matmul(ConstTensorView a, ConstTensorView b, TensorView dst, MatmulOptions options = {});

/// The same for many products of any shapes, with one division of the work among the threads. No product may
/// read or write what another writes.
void matmul_batch(std::span<const MatmulOperands> products, MatmulOptions options = {});

}  // namespace expedite::kernels
