// Causal grouped-query attention in blocks, with an online softmax: a T x T matrix is never held.
// After FlashAttention-2 (Dao, 2023, arXiv:2307.08691), laid out for a CPU core's caches.
#pragma once

#include <cstdint>
#include <span>

#include "expedite/tensor/memory_pool.h"
#include "expedite/tensor/view.h"

namespace expedite::kernels {

struct AttentionOptions {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;  // divides heads; head h reads key/value head h / (heads / kv_heads)
  std::int64_t head_dim = 64;
  float scale = 0.125F;             // multiplies q·k
  std::int64_t sliding_window = 0;  // a token sees itself and window - 1 tokens before it; 0: all before it
};

/// Sequences are packed one behind the other: sequence s has tokens [bounds[s], bounds[s + 1]) and sees only
/// itself. bounds starts at 0, ends at T, never falls; empty sequences are legal, as is T = 0. q, out: [T,
/// heads * head_dim]; k, v: [T, kv_heads * head_dim]; rows may be strided (slices of one fused matrix). q, k,
/// v, out share one type, f32 or bf16. log_sum_exp: f32 [heads, T], of the scaled scores, for backward. Any
/// head_dim >= 1. Scratch memory comes from `pool` (category workspace). Thread count does not change
/// results.
void attention_forward(ConstTensorView q, ConstTensorView k, ConstTensorView v,
                       std::span<const std::int64_t> bounds, const AttentionOptions& options, TensorView out,
                       TensorView log_sum_exp, MemoryPool& pool);

/// dq, dk, dv (overwritten) from dout. `out` and `log_sum_exp` are forward's. dq, dk, dv may be strided
/// slices.
void attention_backward(ConstTensorView dout, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                        ConstTensorView out, ConstTensorView log_sum_exp,
                        std::span<const std::int64_t> bounds, const AttentionOptions& options, TensorView dq,
                        TensorView dk, TensorView dv, MemoryPool& pool);

}  // namespace expedite::kernels
