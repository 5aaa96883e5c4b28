// The attention half of a decoder layer: norm, QKV, optional QK norm, rotary embedding, attention, output
// projection and residual; its input gradient, and its weight gradients apart from that.
#pragma once

#include "expedite/model/micro_batch.h"
#include "expedite/model/parameters.h"
#include "expedite/tensor/arena.h"

namespace expedite::model {

/// What forward keeps for backward. T tokens, H hidden, D head size.
struct AttentionActivations {
  TensorView normed;             // [T, H]
  TensorView inverse_rms;        // f32 [T]
  TensorView qkv;                // [T, (heads + 2 kv_heads) D], normed and rotated
  TensorView raw_query_key;      // [T, (heads + kv_heads) D] before QK norm; empty without it
  TensorView query_inverse_rms;  // f32 [T, heads]
  TensorView key_inverse_rms;    // f32 [T, kv_heads]
  TensorView context;            // [T, heads D]
  TensorView log_sum_exp;        // f32 [heads, T]

  AttentionActivations(Arena& arena, const ModelConfig& config, std::int64_t tokens, DType dtype);
};

/// mid = hidden + attention(norm(hidden)). hidden, mid: [T, H].
void attention_forward(const ModelConfig& config, const AttentionWeights& weights, const MicroBatch& batch,
                       ConstTensorView hidden, AttentionActivations& kept, TensorView mid, MemoryPool& pool);

/// grad_hidden = grad_mid + (gradient through attention); grad_qkv is kept for the weight gradients. The
/// gradients of the norms' weights are added here.
void attention_input_grad(const ModelConfig& config, AttentionWeights& weights, const MicroBatch& batch,
                          ConstTensorView hidden, const AttentionActivations& kept, ConstTensorView grad_mid,
                          TensorView grad_qkv, TensorView grad_hidden, MemoryPool& pool);

/// Adds the gradients of the projections (and their biases).
void attention_weight_grad(AttentionWeights& weights, const AttentionActivations& kept,
                           ConstTensorView grad_mid, ConstTensorView grad_qkv);

}  // namespace expedite::model
