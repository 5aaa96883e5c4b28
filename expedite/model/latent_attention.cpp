#include "expedite/model/latent_attention.h"

#include <vector>

#include "expedite/kernels/attention.h"
#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/latent_heads.h"
#include "expedite/kernels/matmul.h"
#include "expedite/kernels/rms_norm.h"
#include "expedite/model/attention_heads.h"

namespace expedite::model {
namespace {

/// Columns of what a token's row is multiplied to first: the query or what it is compressed to, then what
/// keys and values are compressed to, then the key's rotary part.
struct Columns {
  std::int64_t query = 0;
  std::int64_t kv = 0;
  std::int64_t rope = 0;
  bool compresses_query = false;

  explicit Columns(const ModelConfig& config)
      : query(config.q_lora_rank > 0 ? config.q_lora_rank : config.query_size()),
        kv(config.kv_lora_rank),
        rope(config.qk_rope_head_dim),
        compresses_query(config.q_lora_rank > 0) {}

  [[nodiscard]] std::int64_t all() const { return query + kv + rope; }
};

std::int64_t expanded_size(const ModelConfig& config) {
  return config.heads * (config.qk_nope_head_dim + config.value_dim);
}

/// Matrices of one row per token for the time of a call.
class Scratch {
 public:
  Scratch(MemoryPool& pool, std::int64_t tokens, DType dtype) : pool_(pool), tokens_(tokens), dtype_(dtype) {}

  TensorView take(std::int64_t columns) {
    buffers_.push_back(pool_.allocate(tokens_ * columns * size_of(dtype_), MemoryCategory::workspace));
    return buffers_.back().view(dtype_, {tokens_, columns});
  }

 private:
  MemoryPool& pool_;
  std::int64_t tokens_;
  DType dtype_;
  std::vector<Buffer> buffers_;
};

/// The bias, where there is one, is on what is compressed alone.
TensorView biased_columns(const Columns& columns, const TensorView& compressed) {
  return columns.compresses_query ? compressed
                                  : compressed.columns_slice(columns.query, columns.kv + columns.rope);
}

}  // namespace

LatentActivations::LatentActivations(Arena& arena, const ModelConfig& config, std::int64_t tokens,
                                     DType dtype)
    : normed(arena.take(dtype, {tokens, config.hidden_size})),
      inverse_rms(arena.take(DType::f32, {tokens})),
      compressed(arena.take(dtype, {tokens, config.q_lora_rank + config.kv_lora_rank})),
      kv_normed(arena.take(dtype, {tokens, config.kv_lora_rank})),
      kv_inverse_rms(arena.take(DType::f32, {tokens})),
      query(arena.take(dtype, {tokens, config.query_size()})),
      key(arena.take(dtype, {tokens, config.kv_size()})),
      value(arena.take(dtype, {tokens, config.value_size()})),
      context(arena.take(dtype, {tokens, config.context_size()})),
      log_sum_exp(arena.take(DType::f32, {config.heads, tokens})) {
  if (config.q_lora_rank > 0) {
    query_normed = arena.take(dtype, {tokens, config.q_lora_rank});
    query_inverse_rms = arena.take(DType::f32, {tokens});
  }
}

LatentGradients::LatentGradients(Arena& arena, const ModelConfig& config, std::int64_t tokens, DType dtype)
    : compressed(arena.take(dtype, {tokens, Columns(config).all()})),
      query(config.q_lora_rank > 0 ? arena.take(dtype, {tokens, config.query_size()})
                                   : compressed.columns_slice(0, config.query_size())),
      expanded(arena.take(dtype, {tokens, expanded_size(config)})) {}

void latent_forward(const ModelConfig& config, std::int64_t layer, const AttentionWeights& weights,
                    const MicroBatch& batch, ConstTensorView hidden, LatentActivations& kept, TensorView mid,
                    MemoryPool& pool) {
  const std::int64_t tokens = batch.size();
  const DType dtype = mid.dtype();
  const Columns columns(config);
  kernels::rms_norm(hidden, weights.norm->weight, config.rms_norm_eps, kept.normed, kept.inverse_rms);
  Scratch scratch(pool, tokens, dtype);
  const TensorView compressed = scratch.take(columns.all());
  const TensorView expanded = scratch.take(expanded_size(config));
  kernels::matmul(kept.normed, weights.compress->weight, compressed, {.transpose_b = true});
  if (weights.compress_bias != nullptr) {
    kernels::add_bias(weights.compress_bias->weight, biased_columns(columns, compressed));
  }

  const std::int64_t rank = config.q_lora_rank;
  kernels::convert(compressed.columns_slice(columns.query, columns.kv),
                   kept.compressed.columns_slice(rank, columns.kv));
  if (columns.compresses_query) {
    kernels::convert(compressed.columns_slice(0, rank), kept.compressed.columns_slice(0, rank));
    kernels::rms_norm(kept.compressed.columns_slice(0, rank), weights.query_norm->weight,
                      config.latent_norm_eps, kept.query_normed, kept.query_inverse_rms);
    kernels::matmul(kept.query_normed, weights.query_expand->weight, kept.query, {.transpose_b = true});
  } else {
    kernels::convert(compressed.columns_slice(0, columns.query), kept.query);
  }
  kernels::rms_norm(kept.compressed.columns_slice(rank, columns.kv), weights.key_norm->weight,
                    config.latent_norm_eps, kept.kv_normed, kept.kv_inverse_rms);
  kernels::matmul(kept.kv_normed, weights.expand->weight, expanded, {.transpose_b = true});

  const TensorView rope_key = compressed.columns_slice(columns.query + columns.kv, columns.rope);
  rotate_heads(config, batch, {split_heads(kept.query, config.heads)}, kernels::Rotation::forward,
               config.qk_nope_head_dim);
  rotate_heads(config, batch, {split_heads(rope_key, 1)}, kernels::Rotation::forward);
  kernels::assemble_heads(expanded, rope_key, config.heads, kept.key, kept.value);
  kernels::attention_forward({kept.query, kept.key, kept.value}, batch.bounds,
                             attention_options(config, layer), kept.context, kept.log_sum_exp, pool);
  kernels::matmul(kept.context, weights.output->weight, mid, {.transpose_b = true});
  if (weights.output_bias != nullptr) {
    kernels::add_bias(weights.output_bias->weight, mid);
  }
  kernels::add(hidden, mid);
}

void latent_input_grad(const ModelConfig& config, std::int64_t layer, AttentionWeights& weights,
                       const MicroBatch& batch, ConstTensorView hidden, const LatentActivations& kept,
                       ConstTensorView grad_mid, LatentGradients& grads, TensorView grad_hidden,
                       MemoryPool& pool) {
  const std::int64_t tokens = batch.size();
  const DType dtype = hidden.dtype();
  const Columns columns(config);
  const std::int64_t rank = config.q_lora_rank;
  Scratch scratch(pool, tokens, dtype);
  const TensorView grad_context = scratch.take(config.context_size());
  const TensorView grad_key = scratch.take(config.kv_size());
  const TensorView grad_value = scratch.take(config.value_size());
  kernels::matmul(grad_mid, weights.output->weight, grad_context);
  kernels::attention_backward(grad_context, {kept.query, kept.key, kept.value}, kept.context,
                              kept.log_sum_exp, batch.bounds, attention_options(config, layer),
                              {grads.query, grad_key, grad_value}, pool);

  const TensorView grad_rope_key = grads.compressed.columns_slice(columns.query + columns.kv, columns.rope);
  kernels::assemble_heads_backward(grad_key, grad_value, config.heads, grads.expanded, grad_rope_key);
  rotate_heads(config, batch, {split_heads(grads.query, config.heads)}, kernels::Rotation::backward,
               config.qk_nope_head_dim);
  rotate_heads(config, batch, {split_heads(grad_rope_key, 1)}, kernels::Rotation::backward);
  const auto through_norm = [&](const TensorView& gradient, std::int64_t first, Parameter& norm,
                                const TensorView& inverse_rms) {
    kernels::rms_norm_backward(gradient, kept.compressed.columns_slice(first, gradient.columns()),
                               norm.weight, inverse_rms, gradient, false, norm.gradient);
  };
  if (columns.compresses_query) {
    const TensorView gradient = grads.compressed.columns_slice(0, rank);
    kernels::matmul(grads.query, weights.query_expand->weight, gradient);
    through_norm(gradient, 0, *weights.query_norm, kept.query_inverse_rms);
  }
  const TensorView gradient = grads.compressed.columns_slice(columns.query, columns.kv);
  kernels::matmul(grads.expanded, weights.expand->weight, gradient);
  through_norm(gradient, rank, *weights.key_norm, kept.kv_inverse_rms);

  kernels::matmul(grads.compressed, weights.compress->weight, grad_hidden);
  kernels::rms_norm_backward(grad_hidden, hidden, weights.norm->weight, kept.inverse_rms, grad_hidden, false,
                             weights.norm->gradient);
  kernels::add(grad_mid, grad_hidden);
}

void latent_weight_grad(const ModelConfig& config, AttentionWeights& weights, const LatentActivations& kept,
                        ConstTensorView grad_mid, const LatentGradients& grads) {
  const kernels::MatmulOptions options = {.transpose_a = true, .accumulate = true};
  kernels::matmul(grad_mid, kept.context, weights.output->gradient, options);
  if (weights.query_expand != nullptr) {
    kernels::matmul(grads.query, kept.query_normed, weights.query_expand->gradient, options);
  }
  kernels::matmul(grads.expanded, kept.kv_normed, weights.expand->gradient, options);
  kernels::matmul(grads.compressed, kept.normed, weights.compress->gradient, options);
  if (weights.output_bias != nullptr) {
    kernels::bias_backward(grad_mid, weights.output_bias->gradient);
  }
  if (weights.compress_bias != nullptr) {
    kernels::bias_backward(biased_columns(Columns(config), grads.compressed),
                           weights.compress_bias->gradient);
  }
}

}  // namespace expedite::model
