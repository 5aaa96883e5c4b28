// Multi-head latent attention (DeepSeek-AI, 2024, arXiv:2405.04434) as a decoder layer has it: keys and
// values come from one compressed row per token, and so may queries; a rotary part of the key is shared by
// all heads.
#pragma once

#include "expedite/model/micro_batch.h"
#include "expedite/model/parameters.h"
#include "expedite/tensor/arena.h"

namespace expedite::model {

/// What forward keeps for backward. T tokens, H hidden; Rq, Rkv, D, Dr, Dv as in AttentionWeights.
struct LatentActivations {
  TensorView normed;             // [T, H]
  TensorView inverse_rms;        // f32 [T]
  TensorView compressed;         // [T, Rq + Rkv]: before their norms; Rq may be 0
  TensorView query_normed;       // [T, Rq]; empty where queries are not compressed
  TensorView query_inverse_rms;  // f32 [T]; likewise
  TensorView kv_normed;          // [T, Rkv]
  TensorView kv_inverse_rms;     // f32 [T]
  TensorView query;              // [T, heads D], turned
  TensorView key;                // [T, heads D], turned
  TensorView value;              // [T, heads Dv]
  TensorView context;            // [T, heads Dv]
  TensorView log_sum_exp;        // f32 [heads, T]

  LatentActivations(Arena& arena, const ModelConfig& config, std::int64_t tokens, DType dtype);
};

/// What the weight gradients need.
struct LatentGradients {
  TensorView compressed;  // [T, Rq + Rkv + Dr]; where queries are not compressed, [T, heads D + Rkv + Dr]
  TensorView query;       // [T, heads D]; where queries are not compressed, the first columns of `compressed`
  TensorView expanded;    // [T, heads (Dn + Dv)]

  LatentGradients(Arena& arena, const ModelConfig& config, std::int64_t tokens, DType dtype);
};

/// mid = hidden + attention(norm(hidden)). hidden, mid: [T, H].
void latent_forward(const ModelConfig& config, std::int64_t layer, const AttentionWeights& weights,
                    const MicroBatch& batch, ConstTensorView hidden, LatentActivations& kept, TensorView mid,
                    MemoryPool& pool);

/// grad_hidden = grad_mid + (gradient through attention); `grads` is kept for the weight gradients. The
/// gradients of the norms' weights are added here.
void latent_input_grad(const ModelConfig& config, std::int64_t layer, AttentionWeights& weights,
                       const MicroBatch& batch, ConstTensorView hidden, const LatentActivations& kept,
                       ConstTensorView grad_mid, LatentGradients& grads, TensorView grad_hidden,
                       MemoryPool& pool);

/// Adds the gradients of the projections (and their biases).
void latent_weight_grad(const ModelConfig& config, AttentionWeights& weights, const LatentActivations& kept,
                        ConstTensorView grad_mid, const LatentGradients& grads);

}  // namespace expedite::model
