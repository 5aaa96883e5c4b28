#include "expedite/model/attention_layer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "expedite/kernels/attention.h"
#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/matmul.h"
#include "expedite/kernels/rms_norm.h"
#include "expedite/kernels/rotary.h"

namespace expedite::model {
namespace {

kernels::AttentionOptions attention_options(const ModelConfig& config) {
  return {.heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
          .sliding_window = config.sliding_window};
}

/// The parts of a fused [T, (heads + 2 kv_heads) D] matrix.
template <typename View>
struct Projections {
  View query, key, value;       // [T, heads D], [T, kv_heads D], [T, kv_heads D]
  View query_heads, key_heads;  // [T, heads, D], [T, kv_heads, D]

  Projections(const ModelConfig& config, const View& qkv)
      : query(qkv.columns_slice(0, config.query_size())),
        key(qkv.columns_slice(config.query_size(), config.kv_size())),
        value(qkv.columns_slice(config.query_size() + config.kv_size(), config.kv_size())),
        query_heads(split_heads(query, config.heads)),
        key_heads(split_heads(key, config.kv_heads)) {}

  static View split_heads(const View& matrix, std::int64_t heads) {
    return View(matrix.data(), matrix.dtype(), {matrix.rows(), heads, matrix.columns() / heads},
                matrix.row_stride());
  }
};

/// The frequencies of all models but those whose rotary embedding stretches with the length.
std::vector<float> frequencies(const ModelConfig& config, const MicroBatch& batch) {
  std::int64_t longest = 0;
  for (std::size_t s = 0; s + 1 < batch.bounds.size(); ++s) {
    longest = std::max(longest, batch.bounds[s + 1] - batch.bounds[s]);
  }
  return inverse_frequencies(config.rotary, longest);
}

void rotate(const ModelConfig& config, const MicroBatch& batch, const TensorView& qkv,
            kernels::Rotation direction) {
  const Projections<TensorView> part(config, qkv);
  const std::vector<float> turns = frequencies(config, batch);
  kernels::rotary(part.query_heads, batch.positions, turns, config.rotary_attention_factor, direction);
  kernels::rotary(part.key_heads, batch.positions, turns, config.rotary_attention_factor, direction);
}

}  // namespace

AttentionActivations::AttentionActivations(Arena& arena, const ModelConfig& config, std::int64_t tokens,
                                           DType dtype)
    : normed(arena.take(dtype, {tokens, config.hidden_size})),
      inverse_rms(arena.take(DType::f32, {tokens})),
      qkv(arena.take(dtype, {tokens, config.qkv_size()})),
      context(arena.take(dtype, {tokens, config.query_size()})),
      log_sum_exp(arena.take(DType::f32, {config.heads, tokens})) {
  if (config.qk_norm) {
    raw_query_key = arena.take(dtype, {tokens, config.query_size() + config.kv_size()});
    query_inverse_rms = arena.take(DType::f32, {tokens, config.heads});
    key_inverse_rms = arena.take(DType::f32, {tokens, config.kv_heads});
  }
}

void attention_forward(const ModelConfig& config, const AttentionWeights& weights, const MicroBatch& batch,
                       ConstTensorView hidden, AttentionActivations& kept, TensorView mid, MemoryPool& pool) {
  kernels::rms_norm(hidden, weights.norm->weight, config.rms_norm_eps, kept.normed, kept.inverse_rms);
  kernels::matmul(kept.normed, weights.qkv->weight, kept.qkv, {.transpose_b = true});
  if (weights.qkv_bias != nullptr) {
    kernels::add_bias(weights.qkv_bias->weight, kept.qkv);
  }
  const Projections<TensorView> part(config, kept.qkv);
  if (config.qk_norm) {
    kernels::convert(kept.qkv.columns_slice(0, config.query_size() + config.kv_size()), kept.raw_query_key);
    kernels::rms_norm(part.query_heads, weights.query_norm->weight, config.rms_norm_eps, part.query_heads,
                      kept.query_inverse_rms);
    kernels::rms_norm(part.key_heads, weights.key_norm->weight, config.rms_norm_eps, part.key_heads,
                      kept.key_inverse_rms);
  }
  rotate(config, batch, kept.qkv, kernels::Rotation::forward);
  kernels::attention_forward({part.query, part.key, part.value}, batch.bounds, attention_options(config),
                             kept.context, kept.log_sum_exp, pool);
  kernels::matmul(kept.context, weights.output->weight, mid, {.transpose_b = true});
  if (weights.output_bias != nullptr) {
    kernels::add_bias(weights.output_bias->weight, mid);
  }
  kernels::add(hidden, mid);
}

void attention_input_grad(const ModelConfig& config, AttentionWeights& weights, const MicroBatch& batch,
                          ConstTensorView hidden, const AttentionActivations& kept, ConstTensorView grad_mid,
                          TensorView grad_qkv, TensorView grad_hidden, MemoryPool& pool) {
  const std::int64_t tokens = batch.size();
  const Buffer scratch =
      pool.allocate(tokens * config.query_size() * size_of(hidden.dtype()), MemoryCategory::workspace);
  const TensorView grad_context = scratch.view(hidden.dtype(), {tokens, config.query_size()});
  kernels::matmul(grad_mid, weights.output->weight, grad_context);

  const Projections<TensorView> part(config, kept.qkv);
  const Projections<TensorView> grad(config, grad_qkv);
  kernels::attention_backward(grad_context, {part.query, part.key, part.value}, kept.context,
                              kept.log_sum_exp, batch.bounds, attention_options(config),
                              {grad.query, grad.key, grad.value}, pool);
  rotate(config, batch, grad_qkv, kernels::Rotation::backward);
  if (config.qk_norm) {
    const auto raw_heads = [&](std::int64_t begin, std::int64_t heads) {
      return Projections<TensorView>::split_heads(
          kept.raw_query_key.columns_slice(begin, heads * config.head_dim), heads);
    };
    kernels::rms_norm_backward(grad.query_heads, raw_heads(0, config.heads), weights.query_norm->weight,
                               kept.query_inverse_rms, grad.query_heads, false, weights.query_norm->gradient);
    kernels::rms_norm_backward(grad.key_heads, raw_heads(config.query_size(), config.kv_heads),
                               weights.key_norm->weight, kept.key_inverse_rms, grad.key_heads, false,
                               weights.key_norm->gradient);
  }
  kernels::matmul(grad_qkv, weights.qkv->weight, grad_hidden);
  kernels::rms_norm_backward(grad_hidden, hidden, weights.norm->weight, kept.inverse_rms, grad_hidden, false,
                             weights.norm->gradient);
  kernels::add(grad_mid, grad_hidden);
}

void attention_weight_grad(AttentionWeights& weights, const AttentionActivations& kept,
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
