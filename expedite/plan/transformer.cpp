#include "expedite/plan/transformer.h"

#include <algorithm>

#include "expedite/base/error.h"
#include "expedite/base/log.h"
#include "expedite/base/strict_json.h"
#include "expedite/base/text.h"

namespace expedite::plan {
namespace {

constexpr double kMostParameters = 1e15;

void check_range(const std::string& where, const char* what, std::int64_t value, std::int64_t lowest,
                 std::int64_t highest) {
  require(value >= lowest && value <= highest, "{}: {} = {} must be from {} to {}", where, what, value,
          lowest, highest);
}

}  // namespace

std::int64_t Transformer::count(LayerKind kind) const {
  return std::ranges::count(layers, kind);
}

std::int64_t Transformer::qk_dim() const {
  return attention == AttentionKind::latent ? qk_nope_head_dim + qk_rope_head_dim : head_dim;
}

std::int64_t Transformer::v_dim() const {
  return attention == AttentionKind::latent ? v_head_dim : head_dim;
}

std::int64_t attention_parameters(const Transformer& model) {
  const std::int64_t hidden = model.hidden;
  const std::int64_t output = model.heads * model.v_dim() * hidden + (model.output_bias ? hidden : 0);
  if (model.attention == AttentionKind::latent) {
    const std::int64_t query_size = model.heads * model.qk_dim();
    const std::int64_t query = model.q_lora_rank > 0 ? hidden * model.q_lora_rank + model.q_lora_rank +
                                                           model.q_lora_rank * query_size
                                                     : hidden * query_size;
    const std::int64_t compress = hidden * (model.kv_lora_rank + model.qk_rope_head_dim) + model.kv_lora_rank;
    const std::int64_t expand =
        model.kv_lora_rank * model.heads * (model.qk_nope_head_dim + model.v_head_dim);
    return query + compress + expand + output;
  }
  const std::int64_t qkv = (model.heads + 2 * model.kv_heads) * model.head_dim;
  return hidden * qkv + (model.attention_bias ? qkv : 0) + output;
}

std::int64_t mlp_parameters(const Transformer& model, std::int64_t ffn) {
  const std::int64_t inner = (model.mlp == MlpKind::gated ? 2 : 1) * ffn;
  const std::int64_t biases = model.mlp_bias ? inner + model.hidden : 0;
  return model.hidden * (inner + ffn) + biases;
}

std::int64_t layer_parameters(const Transformer& model, LayerKind kind) {
  // A norm with a bias where the projections have one: GPT's LayerNorm.
  const std::int64_t norms = 2 * model.hidden * (model.mlp == MlpKind::plain ? 2 : 1);
  const std::int64_t shared = attention_parameters(model) + norms;
  if (kind == LayerKind::dense) {
    return shared + mlp_parameters(model, model.ffn);
  }
  return shared + model.hidden * model.experts + (model.router_bias ? model.experts : 0) +
         model.experts * mlp_parameters(model, model.moe_ffn) +
         (model.shared_ffn > 0 ? mlp_parameters(model, model.shared_ffn) : 0);
}

std::int64_t embedding_parameters(const Transformer& model) {
  return model.hidden * (model.vocab + model.positions);
}

namespace {

/// The layers, embedding, head and last norm; `layer` counts one layer.
template <typename Layer>
std::int64_t sum_parameters(const Transformer& model, bool with_prediction, Layer&& layer) {
  std::int64_t sum = embedding_parameters(model) + model.hidden * (model.mlp == MlpKind::plain ? 2 : 1) +
                     (model.tied_embeddings ? 0 : model.hidden * model.vocab);
  for (const LayerKind kind : model.layers) {
    sum += layer(kind);
  }
  if (with_prediction) {
    // Its own layer, the projection of two hidden states to one, and their norms and the last.
    sum +=
        model.mtp_layers * (layer(model.layers.back()) + 2 * model.hidden * model.hidden + 3 * model.hidden);
  }
  return sum;
}

}  // namespace

std::int64_t total_parameters(const Transformer& model, bool with_prediction) {
  return sum_parameters(model, with_prediction,
                        [&](LayerKind kind) { return layer_parameters(model, kind); });
}

std::int64_t active_parameters(const Transformer& model, bool with_prediction) {
  const std::int64_t idle = model.experts - model.topk;
  return sum_parameters(model, with_prediction, [&](LayerKind kind) {
    return layer_parameters(model, kind) -
           (kind == LayerKind::moe ? idle * mlp_parameters(model, model.moe_ffn) : 0);
  });
}

void check(const Transformer& model, const std::string& where) {
  constexpr std::int64_t kWide = 1 << 20;
  constexpr std::int64_t kMany = 1 << 16;
  check_range(where, "layers", model.layer_count(), 1, 4096);
  check_range(where, "hidden size", model.hidden, 1, kWide);
  check_range(where, "vocabulary", model.vocab, 1, 1 << 24);
  check_range(where, "attention heads", model.heads, 1, kMany);
  check_range(where, "key-value heads", model.kv_heads, 1, model.heads);
  require(model.heads % model.kv_heads == 0,
          "{}: {} attention heads cannot share {} key-value heads evenly; legal are divisors of {}", where,
          model.heads, model.kv_heads, model.heads);
  check_range(where, "query and key elements per head", model.qk_dim(), 1, kMany);
  check_range(where, "value elements per head", model.v_dim(), 1, kMany);
  check_range(where, "q_lora_rank", model.q_lora_rank, 0, kWide);
  check_range(where, "kv_lora_rank", model.kv_lora_rank, model.attention == AttentionKind::latent ? 1 : 0,
              kWide);
  check_range(where, "multi-token prediction layers", model.mtp_layers, 0, 16);
  check_range(where, "learned positions", model.positions, 0, 1 << 24);
  check_range(where, "windowed layers", model.windowed_layers, 0, model.layer_count());
  if (model.count(LayerKind::dense) > 0) {
    check_range(where, "FFN size", model.ffn, 1, 4 * kWide);
  }
  if (model.count(LayerKind::moe) > 0) {
    check_range(where, "experts", model.experts, 1, 4096);
    check_range(where, "experts per token", model.topk, 1, model.experts);
    check_range(where, "FFN size of an expert", model.moe_ffn, 1, 4 * kWide);
    check_range(where, "FFN size of the shared experts", model.shared_ffn, 0, 4 * kWide);
  }
  // In floating point, because the exact sum of absurd sizes does not fit into 64 bits.
  const double experts = static_cast<double>(model.count(LayerKind::moe)) *
                         static_cast<double>(model.experts) * 3.0 * static_cast<double>(model.hidden) *
                         static_cast<double>(model.moe_ffn);
  const double dense =
      static_cast<double>(model.layer_count()) * static_cast<double>(model.hidden) *
      (3.0 * static_cast<double>(std::max(model.ffn, model.shared_ffn)) +
       4.0 * static_cast<double>(model.heads) * static_cast<double>(std::max(model.qk_dim(), model.v_dim())));
  require(experts + dense <= kMostParameters,
          "{}: these sizes make about {:.1e} parameters; at most {:.0e} are planned for", where,
          experts + dense, kMostParameters);
}

Transformer load_transformer(const std::string& name_or_path) {
  if (const Transformer* builtin = find_builtin_model(name_or_path)) {
    return *builtin;
  }
  std::filesystem::path path = name_or_path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    path /= "config.json";
  }
  if (!std::filesystem::exists(path, ignored)) {
    const std::vector<std::string> names = builtin_model_names();
    fail("model {}: neither a config.json nor a built-in model; the nearest is {}, and built in are {}",
         name_or_path, nearest_name(name_or_path, names), join_choices(names));
  }
  Transformer model = parse_transformer(read_strict_json(path), path.string());
  std::ranges::for_each(model.notes, warn_once);
  return model;
}

}  // namespace expedite::plan
