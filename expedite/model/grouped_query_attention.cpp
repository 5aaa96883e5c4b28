#include "expedite/model/grouped_query_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "expedite/kernels/attention.h"
#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/matmul.h"
#include "expedite/kernels/rms_norm.h"
#include "expedite/kernels/rotary.h"
#include "expedite/model/attention_heads.h"

namespace expedite::model {
namespace {

/// The parts of a fused [T, (heads + 2 kv_heads) D] matrix.
struct Projections {
  TensorView query, key, value;       // [T, heads D], [T, kv_heads D], [T, kv_heads D]
  TensorView query_heads, key_heads;  // [T, heads, D], [T, kv_heads, D]

  Projections(const ModelConfig& config, const TensorView& qkv)
      : query(qkv.columns_slice(0, config.query_size())),
        key(qkv.columns_slice(config.query_size(), config.kv_size())),
        value(qkv.columns_slice(config.query_size() + config.kv_size(), config.kv_size())),
        query_heads(split_heads(query, config.heads)),
        key_heads(split_heads(key, config.kv_heads)) {}
};

void rotate(const ModelConfig& config, const MicroBatch& batch, const TensorView& qkv,
            kernels::Rotation direction) {
  const Projections part(config, qkv);
  rotate_heads(config, batch, {part.query_heads, part.key_heads}, direction);
}

ConstTensorView sinks_of(const AttentionWeights& weights) {
  return weights.sinks != nullptr ? weights.sinks->weight : TensorView();
}

/// What QK norm sees as rows: heads, or all heads of a token together.
TensorView norm_rows(const ModelConfig& config, const TensorView& matrix, std::int64_t heads) {
  return config.qk_norm == architecture::QkNorm::whole ? matrix : split_heads(matrix, heads);
}

}  // namespace

AttentionActivations::AttentionActivations(Arena& arena, const ModelConfig& config, std::int64_t tokens,
                                           DType dtype)
    : normed(arena.take(dtype, {tokens, config.hidden_size})),
      inverse_rms(arena.take(DType::f32, {tokens})),
      qkv(arena.take(dtype, {tokens, config.qkv_size()})),
      context(arena.take(dtype, {tokens, config.query_size()})),
      log_sum_exp(arena.take(DType::f32, {config.heads, tokens})) {
  if (config.qk_norm != architecture::QkNorm::none) {
    const bool whole = config.qk_norm == architecture::QkNorm::whole;
    raw_query_key = arena.take(dtype, {tokens, config.query_size() + config.kv_size()});
    query_inverse_rms = arena.take(DType::f32, whole ? Shape{tokens} : Shape{tokens, config.heads});
    key_inverse_rms = arena.take(DType::f32, whole ? Shape{tokens} : Shape{tokens, config.kv_heads});
  }
}

void grouped_query_forward(const ModelConfig& config, std::int64_t layer, const AttentionWeights& weights,
                           const MicroBatch& batch, ConstTensorView hidden, AttentionActivations& kept,
                           TensorView mid, MemoryPool& pool) {
  kernels::rms_norm(hidden, weights.norm->weight, config.rms_norm_eps, kept.normed, kept.inverse_rms);
  kernels::matmul(kept.normed, weights.qkv->weight, kept.qkv, {.transpose_b = true});
  if (weights.qkv_bias != nullptr) {
    kernels::add_bias(weights.qkv_bias->weight, kept.qkv);
  }
  const Projections part(config, kept.qkv);
  if (config.qk_norm != architecture::QkNorm::none) {
    kernels::convert(kept.qkv.columns_slice(0, config.query_size() + config.kv_size()), kept.raw_query_key);
    const TensorView query = norm_rows(config, part.query, config.heads);
    const TensorView key = norm_rows(config, part.key, config.kv_heads);
    kernels::rms_norm(query, weights.query_norm->weight, config.rms_norm_eps, query, kept.query_inverse_rms);
    kernels::rms_norm(key, weights.key_norm->weight, config.rms_norm_eps, key, kept.key_inverse_rms);
  }
  rotate(config, batch, kept.qkv, kernels::Rotation::forward);
  kernels::attention_forward({part.query, part.key, part.value, sinks_of(weights)}, batch.bounds,
                             attention_options(config, layer), kept.context, kept.log_sum_exp, pool);
  kernels::matmul(kept.context, weights.output->weight, mid, {.transpose_b = true});
  if (weights.output_bias != nullptr) {
    kernels::add_bias(weights.output_bias->weight, mid);
  }
  kernels::add(hidden, mid);
}

void grouped_query_input_grad(const ModelConfig& config, std::int64_t layer, AttentionWeights& weights,
                              const MicroBatch& batch, ConstTensorView hidden,
                              const AttentionActivations& kept, ConstTensorView grad_mid, TensorView grad_qkv,
                              TensorView grad_hidden, MemoryPool& pool) {
  const std::int64_t tokens = batch.size();
  const Buffer scratch =
      pool.allocate(tokens * config.query_size() * size_of(hidden.dtype()), MemoryCategory::workspace);
  const TensorView grad_context = scratch.view(hidden.dtype(), {tokens, config.query_size()});
  kernels::matmul(grad_mid, weights.output->weight, grad_context);

  const Projections part(config, kept.qkv);
  const Projections grad(config, grad_qkv);
  const TensorView grad_sinks = weights.sinks != nullptr ? weights.sinks->gradient : TensorView();
  kernels::attention_backward(grad_context, {part.query, part.key, part.value, sinks_of(weights)},
                              kept.context, kept.log_sum_exp, batch.bounds, attention_options(config, layer),
                              {grad.query, grad.key, grad.value, grad_sinks}, pool);
  rotate(config, batch, grad_qkv, kernels::Rotation::backward);
  if (config.qk_norm != architecture::QkNorm::none) {
    const auto backward = [&](const TensorView& gradient, std::int64_t begin, std::int64_t heads,
                              Parameter& norm, const TensorView& inverse_rms) {
      const TensorView raw = kept.raw_query_key.columns_slice(begin, heads * config.head_dim);
      const TensorView rows = norm_rows(config, gradient, heads);
      kernels::rms_norm_backward(rows, norm_rows(config, raw, heads), norm.weight, inverse_rms, rows, false,
                                 norm.gradient);
    };
    backward(grad.query, 0, config.heads, *weights.query_norm, kept.query_inverse_rms);
    backward(grad.key, config.query_size(), config.kv_heads, *weights.key_norm, kept.key_inverse_rms);
  }
  kernels::matmul(grad_qkv, weights.qkv->weight, grad_hidden);
  kernels::rms_norm_backward(grad_hidden, hidden, weights.norm->weight, kept.inverse_rms, grad_hidden, false,
                             weights.norm->gradient);
  kernels::add(grad_mid, grad_hidden);
}

void grouped_query_weight_grad(AttentionWeights& weights, const AttentionActivations& kept,
                               ConstTensorView grad_mid, ConstTensorView grad_qkv) {
  const kernels::MatmulOptions options = {.transpose_a = true, .accumulate = true};
  kernels::matmul(grad_mid, kept.context, weights.output->gradient, options);
  kernels::matmul(grad_qkv, kept.normed, weights.qkv->gradient, options);
  if (weights.output_bias != nullptr) {
    kernels::bias_backward(grad_mid, weights.output_bias->gradient);
  }
  if (weights.qkv_bias != nullptr) {
    kernels::bias_backward(grad_qkv, weights.qkv_bias->gradient);
  }
}

}  // namespace expedite::model
