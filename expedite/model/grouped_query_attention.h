// Grouped-query attention (Ainslie et al., 2023, arXiv:2305.13245) as a decoder layer has it: norm, QKV,
// optional QK norm, rotary embedding, attention, output projection and residual; and its gradients.
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
  TensorView query_inverse_rms;  // f32 [T, heads], or [T] where all heads are normed together
  TensorView key_inverse_rms;    // f32 [T, kv_heads], likewise
  TensorView context;            // [T, heads D]
  TensorView log_sum_exp;        // f32 [heads, T]

  AttentionActivations(Arena& arena, const ModelConfig& config, std::int64_t tokens, DType dtype);
};

/// mid = hidden + attention(norm(hidden)). hidden, mid: [T, H].
void grouped_query_forward(const ModelConfig& config, std::int64_t layer, const AttentionWeights& weights,
                           const MicroBatch& batch, ConstTensorView hidden, AttentionActivations& kept,
                           TensorView mid, MemoryPool& pool);

/// grad_hidden = grad_mid + (gradient through attention); grad_qkv is kept for the weight gradients. The
/// gradients of the norms' weights and of sinks are added here.
void grouped_query_input_grad(const ModelConfig& config, std::int64_t layer, AttentionWeights& weights,
                              const MicroBatch& batch, ConstTensorView hidden,
                              const AttentionActivations& kept, ConstTensorView grad_mid, TensorView grad_qkv,
                              TensorView grad_hidden, MemoryPool& pool);

/// Adds the gradients of the projections (and their biases).
void grouped_query_weight_grad(AttentionWeights& weights, const AttentionActivations& kept,
                               ConstTensorView grad_mid, ConstTensorView grad_qkv);

}  // namespace expedite::model
