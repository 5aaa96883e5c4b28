#include "expedite/architecture/parameter_count.h"

namespace expedite::architecture {

namespace {

/// Of the norms of query and key.
std::int64_t qk_norm_parameters(const ModelConfig& model) {
  switch (model.qk_norm) {
    case QkNorm::head:
      return 2 * model.head_dim;
    case QkNorm::whole:
      return model.query_size() + model.kv_size();
    default:
      return 0;
  }
}

std::int64_t latent_parameters(const ModelConfig& model) {
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t rank = model.q_lora_rank;
  const std::int64_t query =
      rank > 0 ? hidden * rank + rank + rank * model.query_size() : hidden * model.query_size();
  const std::int64_t compress = hidden * model.compressed_size() + model.kv_lora_rank;
  const std::int64_t expand = model.kv_lora_rank * model.heads * (model.qk_nope_head_dim + model.value_dim);
  return query + compress + expand + (model.qkv_bias ? rank + model.compressed_size() : 0);
}

}  // namespace

std::int64_t attention_parameters(const ModelConfig& model) {
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t output = model.context_size() * hidden + (model.output_bias ? hidden : 0) +
                              (model.attention_sinks ? model.heads : 0);
  if (model.attention == AttentionKind::latent) {
    return latent_parameters(model) + output;
  }
  return hidden * model.qkv_size() + (model.qkv_bias ? model.qkv_size() : 0) + qk_norm_parameters(model) +
         output;
}

std::int64_t mlp_parameters(const ModelConfig& model, std::int64_t ffn) {
  const std::int64_t inner = (model.mlp == MlpKind::plain ? 1 : 2) * ffn;
  const std::int64_t biases = model.mlp_bias ? inner + model.hidden_size : 0;
  return model.hidden_size * (inner + ffn) + biases;
}

std::int64_t layer_parameters(const ModelConfig& model, LayerKind kind) {
  // A norm with a bias where the projections have one: GPT's LayerNorm.
  const std::int64_t norms = 2 * model.hidden_size * (model.mlp == MlpKind::plain ? 2 : 1);
  const std::int64_t attention = attention_parameters(model) + norms;
  if (kind == LayerKind::dense) {
    return attention + mlp_parameters(model, model.intermediate_size);
  }
  const std::int64_t router =
      model.experts * (model.hidden_size + (model.router_bias ? 1 : 0) + (model.expert_bias ? 1 : 0));
  const std::int64_t shared_ffn = model.shared_expert_intermediate_size;
  const std::int64_t shared = (shared_ffn > 0 ? mlp_parameters(model, shared_ffn) : 0) +
                              (model.shared_expert_gate ? model.hidden_size : 0);
  return attention + router + model.experts * mlp_parameters(model, model.moe_intermediate_size) + shared;
}

std::int64_t embedding_parameters(const ModelConfig& model) {
  return model.hidden_size * (model.vocab_size + model.positions);
}

namespace {

/// The layers, embedding, head and last norm; `layer` counts one layer.
template <typename Layer>
std::int64_t sum_parameters(const ModelConfig& model, bool with_prediction, Layer&& layer) {
  std::int64_t sum = embedding_parameters(model) + model.hidden_size * (model.mlp == MlpKind::plain ? 2 : 1) +
                     (model.tie_word_embeddings ? 0 : model.hidden_size * model.vocab_size);
  for (const LayerKind kind : {LayerKind::dense, LayerKind::moe}) {
    const std::int64_t count = model.count(kind);
    sum += count > 0 ? count * layer(kind) : 0;
  }
  if (with_prediction) {
    // Its own layer, the projection of two hidden states to one, and their norms and the last.
    sum += model.prediction_layers * (layer(model.kind(model.layers - 1)) +
                                      2 * model.hidden_size * model.hidden_size + 3 * model.hidden_size);
  }
  return sum;
}

}  // namespace

std::int64_t total_parameters(const ModelConfig& model, bool with_prediction) {
  return sum_parameters(model, with_prediction,
                        [&](LayerKind kind) { return layer_parameters(model, kind); });
}

std::int64_t active_parameters(const ModelConfig& model, bool with_prediction) {
  const std::int64_t idle = model.experts - model.experts_per_token;
  return sum_parameters(model, with_prediction, [&](LayerKind kind) {
    return layer_parameters(model, kind) -
           (kind == LayerKind::moe ? idle * mlp_parameters(model, model.moe_intermediate_size) : 0);
  });
}

}  // namespace expedite::architecture
