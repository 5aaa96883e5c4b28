#include "expedite/model/config.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "expedite/base/error.h"
#include "expedite/model/config_fields.h"
#include "expedite/model/strict_json.h"

namespace expedite::model {
namespace {

constexpr std::int64_t kMaxLayers = 1 << 16;
constexpr std::int64_t kMaxExperts = 1 << 16;
constexpr std::int64_t kMaxHeadDim = 1 << 16;
constexpr double kSmallestEpsilon = 1e-30;

// What Hugging Face's configuration class of a family holds before config.json is read.
struct Defaults {
  std::int64_t vocab_size;
  std::int64_t hidden_size;
  std::int64_t intermediate_size;
  std::int64_t layers;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t max_position_embeddings;
  std::int64_t experts;
  std::int64_t experts_per_token;
  double rms_norm_eps;
  double rope_theta;
};

constexpr Defaults kQwen3Moe = {.vocab_size = 151936,
                                .hidden_size = 2048,
                                .intermediate_size = 6144,
                                .layers = 24,
                                .heads = 32,
                                .kv_heads = 4,
                                .max_position_embeddings = 32768,
                                .experts = 128,
                                .experts_per_token = 8,
                                .rms_norm_eps = 1e-6,
                                .rope_theta = 10000.0};
constexpr std::int64_t kQwen3MoeExpertSize = 768;
constexpr std::int64_t kQwen3MoeSlidingWindow = 4096;

constexpr Defaults kMixtral = {.vocab_size = 32000,
                               .hidden_size = 4096,
                               .intermediate_size = 14336,
                               .layers = 32,
                               .heads = 32,
                               .kv_heads = 8,
                               .max_position_embeddings = 131072,
                               .experts = 8,
                               .experts_per_token = 2,
                               .rms_norm_eps = 1e-5,
                               .rope_theta = 1e6};

Family parse_family(const ConfigFields& fields) {
  const std::string type = fields.text("model_type", "");
  require(!type.empty(), "{}: the field model_type is missing; qwen3_moe and mixtral are legal",
          fields.where());
  if (type == "qwen3_moe") {
    return Family::qwen3_moe;
  }
  require(type == "mixtral", "{}: model_type \"{}\" is not built; qwen3_moe and mixtral are", fields.where(),
          type);
  return Family::mixtral;
}

// Fields that would change the model's arithmetic and that are not built must not pass unnoticed.
void refuse_what_is_not_built(const ConfigFields& fields) {
  const std::string activation = fields.text("hidden_act", "silu");
  require(activation == "silu", "{}: hidden_act \"{}\" is not built; only \"silu\" is", fields.where(),
          activation);
  require(fields.number("attention_dropout", 0.0, 0.0) == 0.0,
          "{}: attention_dropout is not built; it must be 0", fields.where());
  require(fields.number("router_jitter_noise", 0.0, 0.0) == 0.0,
          "{}: router_jitter_noise is not built; it must be 0", fields.where());
  require(fields.number("partial_rotary_factor", 1.0, 0.0) == 1.0,
          "{}: partial_rotary_factor is not built; it must be 1", fields.where());
  require(!fields.has("quantization_config"), "{}: quantization_config: quantised weights are not read",
          fields.where());
}

void parse_sizes(const ConfigFields& fields, const Defaults& defaults, ModelConfig& config) {
  config.vocab_size = fields.integer("vocab_size", defaults.vocab_size);
  config.hidden_size = fields.integer("hidden_size", defaults.hidden_size);
  config.intermediate_size = fields.integer("intermediate_size", defaults.intermediate_size);
  config.layers = fields.integer("num_hidden_layers", defaults.layers, 1, kMaxLayers);
  config.max_position_embeddings =
      fields.integer("max_position_embeddings", defaults.max_position_embeddings);
  config.rms_norm_eps =
      static_cast<float>(fields.number("rms_norm_eps", defaults.rms_norm_eps, kSmallestEpsilon));
  config.initializer_range = static_cast<float>(fields.number("initializer_range", 0.02, 0.0));
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
}

void parse_heads(const ConfigFields& fields, const Defaults& defaults, ModelConfig& config) {
  config.heads = fields.integer("num_attention_heads", defaults.heads);
  // An explicit null means as many key/value heads as query heads; an absent field means the family's
  // default.
  config.kv_heads = fields.integer("num_key_value_heads",
                                   fields.contains("num_key_value_heads") ? config.heads : defaults.kv_heads);
  require(config.heads % config.kv_heads == 0,
          "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", fields.where(),
          config.heads, config.kv_heads);
  const std::optional<std::int64_t> head_dim = fields.optional_integer("head_dim");
  require(head_dim.has_value() || config.hidden_size % config.heads == 0,
          "{}: head_dim is not given, and hidden_size {} is not a multiple of num_attention_heads {}",
          fields.where(), config.hidden_size, config.heads);
  config.head_dim = head_dim.value_or(config.hidden_size / config.heads);
  require(config.head_dim % 2 == 0, "{}: head_dim {} is odd; rotary embedding turns pairs", fields.where(),
          config.head_dim);
  require(config.head_dim <= kMaxHeadDim, "{}: head_dim {} is beyond {}", fields.where(), config.head_dim,
          kMaxHeadDim);
  require(config.qkv_size() <= ConfigFields::kMaxSize,
          "{}: num_attention_heads x head_dim is too large: query, key and value take {} columns",
          fields.where(), config.qkv_size());
}

std::int64_t parse_expert_count(const ConfigFields& fields, const char* field, const char* other_field,
                                std::int64_t default_value, std::int64_t lowest) {
  const std::optional<std::int64_t> count = fields.optional_integer(field, lowest, kMaxExperts);
  const std::optional<std::int64_t> other = fields.optional_integer(other_field, lowest, kMaxExperts);
  require(!count || !other || *count == *other, "{}: {} is {} and {} is {}; remove one", fields.where(),
          field, count.value_or(0), other_field, other.value_or(0));
  return count ? *count : other.value_or(default_value);
}

void parse_router(const ConfigFields& fields, const Defaults& defaults, ModelConfig& config) {
  config.experts_per_token = fields.integer("num_experts_per_tok", defaults.experts_per_token);
  require(config.experts == 0 || config.experts_per_token <= config.experts,
          "{}: num_experts_per_tok {} is more than the {} experts", fields.where(), config.experts_per_token,
          config.experts);
  config.router_aux_loss_coef = static_cast<float>(fields.number("router_aux_loss_coef", 0.001, 0.0));
  const std::string scoring = fields.text("scoring_func", "softmax");
  require(scoring == "softmax" || scoring == "sigmoid",
          "{}: scoring_func \"{}\" is not built; softmax and sigmoid are", fields.where(), scoring);
  config.scoring = scoring == "softmax" ? kernels::Scoring::softmax : kernels::Scoring::sigmoid;
  config.expert_bias = fields.boolean("moe_router_enable_expert_bias", false);
  config.routed_scaling_factor =
      static_cast<float>(fields.number("routed_scaling_factor", 1.0, kSmallestEpsilon));
}

// Layer i is sparse when it is not listed in mlp_only_layers and i + 1 is a multiple of decoder_sparse_step.
std::vector<bool> parse_sparse_layers(const ConfigFields& fields, const ModelConfig& config) {
  const std::int64_t step = fields.integer("decoder_sparse_step", 1);
  std::vector<bool> sparse(config.layers);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    sparse[layer] = config.experts > 0 && (layer + 1) % step == 0;
  }
  const nlohmann::json* dense = fields.find("mlp_only_layers");
  if (dense == nullptr) {
    return sparse;
  }
  require(dense->is_array(), "{}: mlp_only_layers must be a list of layer numbers, not {}", fields.where(),
          excerpt(*dense));
  for (const nlohmann::json& entry : *dense) {
    const bool legal =
        entry.is_number_unsigned() || (entry.is_number_integer() && entry.get<std::int64_t>() >= 0);
    require(legal, "{}: mlp_only_layers must list layer numbers from 0, not {}", fields.where(),
            excerpt(entry));
    // Numbers beyond the last layer are legal: shortened models keep the list of the long one.
    if (const auto layer = entry.get<std::uint64_t>(); layer < sparse.size()) {
      sparse[layer] = false;
    }
  }
  return sparse;
}

// layer_types is written by newer versions, which still give all layers of these families the same mask.
void check_layer_types(const ConfigFields& fields, const ModelConfig& config) {
  const nlohmann::json* types = fields.find("layer_types");
  if (types == nullptr) {
    return;
  }
  const std::string_view expected = config.sliding_window > 0 ? "sliding_attention" : "full_attention";
  require(
      types->is_array() && std::ranges::all_of(*types, [&](const auto& type) { return type == expected; }),
      "{}: layer_types must be \"{}\" for every layer, as sliding_window {} says; layers that differ are not "
      "built",
      fields.where(), expected, config.sliding_window);
}

void parse_qwen3_moe(const ConfigFields& fields, ModelConfig& config) {
  config.qk_norm = true;
  config.attention_bias = fields.boolean("attention_bias", false);
  config.norm_topk_prob = fields.boolean("norm_topk_prob", false);
  config.moe_intermediate_size = fields.integer("moe_intermediate_size", kQwen3MoeExpertSize);
  // Without experts, every layer is dense.
  config.experts = parse_expert_count(fields, "num_experts", "num_local_experts", kQwen3Moe.experts, 0);
  if (fields.boolean("use_sliding_window", false)) {
    const bool given_null = fields.contains("sliding_window") && !fields.has("sliding_window");
    config.sliding_window = fields.integer("sliding_window", given_null ? 0 : kQwen3MoeSlidingWindow);
  }
}

void parse_mixtral(const ConfigFields& fields, ModelConfig& config) {
  require(!fields.boolean("attention_bias", false),
          "{}: attention_bias: mixtral's projections have no biases; use model_type qwen3_moe",
          fields.where());
  require(fields.boolean("norm_topk_prob", true),
          "{}: norm_topk_prob: mixtral always renormalises; use model_type qwen3_moe", fields.where());
  config.norm_topk_prob = true;
  config.moe_intermediate_size = config.intermediate_size;
  config.experts = parse_expert_count(fields, "num_local_experts", "num_experts", kMixtral.experts, 1);
  if (fields.boolean("use_sliding_window", true)) {
    config.sliding_window = fields.integer("sliding_window", 0);
  }
}

}  // namespace

ModelConfig parse_model_config(const nlohmann::json& source, const std::string& where) {
  const ConfigFields fields(source, where);
  ModelConfig config;
  config.family = parse_family(fields);
  refuse_what_is_not_built(fields);
  const Defaults& defaults = config.family == Family::qwen3_moe ? kQwen3Moe : kMixtral;
  parse_sizes(fields, defaults, config);
  parse_heads(fields, defaults, config);
  if (config.family == Family::qwen3_moe) {
    parse_qwen3_moe(fields, config);
    config.sparse = parse_sparse_layers(fields, config);
  } else {
    parse_mixtral(fields, config);
    config.sparse.assign(config.layers, true);
  }
  check_layer_types(fields, config);
  parse_router(fields, defaults, config);
  config.rotary =
      parse_rotary_settings(fields, config.head_dim, config.max_position_embeddings, defaults.rope_theta);
  config.inverse_frequencies = inverse_frequencies(config.rotary, config.max_position_embeddings);
  config.rotary_attention_factor = static_cast<float>(config.rotary.attention_factor);
  config.source = source;
  return config;
}

ModelConfig read_model_config(const std::filesystem::path& config_json) {
  return parse_model_config(read_strict_json(config_json), config_json.string());
}

}  // namespace expedite::model
