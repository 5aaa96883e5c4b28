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
  std::int64_t value_dim = 0;       // size of a value head (DeepSeek's differ); 0: head_dim
  float scale = 0.125F;             // multiplies q·k
  std::int64_t sliding_window = 0;  // a token sees itself and window - 1 tokens before it; 0: all before it
};

/// What attention reads. q: [T, heads * head_dim]; k: [T, kv_heads * head_dim]; v: [T, kv_heads * value_dim];
/// rows may be strided (slices of one fused matrix). One type, f32 or bf16. sinks: [heads], f32 or that type,
/// or empty: none. A sink is a learned logit per query head that takes its share of the softmax and adds
/// nothing to the output (gpt-oss, OpenAI, 2025, arXiv:2508.10925); the scale does not multiply it.
struct AttentionOperands {
  ConstTensorView q;
  ConstTensorView k;
  ConstTensorView v;
  ConstTensorView sinks = {};
};

/// Where gradients go, shaped as what they belong to. q, k, v are overwritten and may be strided slices.
/// sinks: f32, added to; or empty: not wanted.
struct AttentionGradients {
  TensorView q;
  TensorView k;
  TensorView v;
  TensorView sinks = {};
};

/// Sequences are packed one behind the other: sequence s has tokens [bounds[s], bounds[s + 1]) and sees only
/// itself. bounds starts at 0, ends at T, never falls; empty sequences are legal, as is T = 0. out: [T, heads
/// * value_dim], of the operands' type; rows may be strided. log_sum_exp: f32 [heads, T], of the scaled
/// scores and the sink, for backward. Any head_dim and value_dim >= 1. Scratch memory comes from `pool`
/// (category workspace). Thread count does not change results.
void attention_forward(const AttentionOperands& operands, std::span<const std::int64_t> bounds,
                       const AttentionOptions& options, TensorView out, TensorView log_sum_exp,
                       MemoryPool& pool);

/// Gradients from dout. `out` and `log_sum_exp` are forward's. A sink's gradient is summed in fp64, over
/// tokens and then sequences.
void attention_backward(ConstTensorView dout, const AttentionOperands& operands, ConstTensorView out,
                        ConstTensorView log_sum_exp, std::span<const std::int64_t> bounds,
                        const AttentionOptions& options, const AttentionGradients& gradients,
                        MemoryPool& pool);

}  // namespace expedite::kernels
