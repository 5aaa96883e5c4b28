#include "expedite/model/config.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "expedite/base/config_fields.h"
#include "expedite/base/error.h"
#include "expedite/base/hugging_face_fields.h"
#include "expedite/base/strict_json.h"
#include "expedite/model/config_defaults.h"

namespace expedite::model {
namespace {

constexpr std::int64_t kMaxLayers = 1 << 16;
constexpr std::int64_t kMaxPredictionLayers = 16;
constexpr std::int64_t kMaxExperts = 1 << 16;
constexpr std::int64_t kMaxHeadDim = 1 << 16;
constexpr double kSmallestEpsilon = 1e-30;

constexpr std::int64_t kSlidingWindow = 4096;       // of qwen3_moe and dots1
constexpr std::int64_t kDots1MaxWindowLayers = 62;  // as many layers as that model has
constexpr std::string_view kLegalTypes = "qwen2_moe, qwen3_moe, mixtral, dots1 and glm4_moe";

Family parse_family(const ConfigFields& fields) {
  const std::string type = fields.text("model_type", "");
  require(!type.empty(), "{}: the field model_type is missing; {} are legal", fields.where(), kLegalTypes);
  require(type != "deepseek_v3",
          "{}: model_type \"deepseek_v3\" needs multi-head latent attention, which is not built; dots1 and "
          "glm4_moe have its mixture of experts, with grouped-query attention",
          fields.where());
  if (type == "qwen2_moe") {
    return Family::qwen2_moe;
  }
  if (type == "qwen3_moe") {
    return Family::qwen3_moe;
  }
  if (type == "dots1") {
    return Family::dots1;
  }
  if (type == "glm4_moe") {
    return Family::glm4_moe;
  }
  require(type == "mixtral", "{}: model_type \"{}\" is not built; {} are", fields.where(), type, kLegalTypes);
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
  require(!fields.has("quantization_config"), "{}: quantization_config: quantised weights are not read",
          fields.where());
}

void parse_sizes(const ConfigFields& fields, const Defaults& defaults, ModelConfig& config) {
  config.vocab_size = fields.integer("vocab_size", defaults.vocab_size);
  config.hidden_size = fields.integer("hidden_size", defaults.hidden_size);
  config.intermediate_size = fields.integer("intermediate_size", defaults.intermediate_size);
  config.moe_intermediate_size = defaults.expert_size > 0
                                     ? fields.integer("moe_intermediate_size", defaults.expert_size)
                                     : config.intermediate_size;
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

void parse_experts_per_token(const ConfigFields& fields, const Defaults& defaults, ModelConfig& config) {
  config.experts_per_token = defaults.experts_per_token > 0
                                 ? fields.integer("num_experts_per_tok", defaults.experts_per_token)
                                 : fields.required_integer("num_experts_per_tok");
  require(config.experts == 0 || config.experts_per_token <= config.experts,
          "{}: num_experts_per_tok {} is more than the {} experts", fields.where(), config.experts_per_token,
          config.experts);
  config.router_aux_loss_coef = static_cast<float>(fields.number("router_aux_loss_coef", 0.001, 0.0));
  config.routed_scaling_factor =
      static_cast<float>(fields.number("routed_scaling_factor", 1.0, kSmallestEpsilon));
}

// The Qwen families and Mixtral: softmax, and beyond Hugging Face's classes also sigmoid and a bias.
void parse_router(const ConfigFields& fields, ModelConfig& config) {
  const std::string scoring = fields.text("scoring_func", "softmax");
  require(scoring == "softmax" || scoring == "sigmoid",
          "{}: scoring_func \"{}\" is not built; softmax and sigmoid are", fields.where(), scoring);
  config.scoring = scoring == "softmax" ? kernels::Scoring::softmax : kernels::Scoring::sigmoid;
  config.expert_bias = fields.boolean("moe_router_enable_expert_bias", false);
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

void parse_qwen2_moe(const ConfigFields& fields, ModelConfig& config) {
  config.qkv_bias = fields.boolean("qkv_bias", true);
  config.norm_topk_prob = fields.boolean("norm_topk_prob", false);
  config.experts = parse_expert_count(fields, "num_experts", "num_local_experts", kQwen2Moe.experts, 0);
  config.shared_expert_intermediate_size =
      fields.integer("shared_expert_intermediate_size", kQwen2Moe.shared_expert_size);
  config.shared_expert_gate = true;
  config.sparse = parse_sparse_layers(fields, config);
  parse_router(fields, config);
  // Versions of Hugging Face differ in which layers then have the window.
  require(!fields.boolean("use_sliding_window", false),
          "{}: use_sliding_window is not built for qwen2_moe; it must be false", fields.where());
}

void parse_qwen3_moe(const ConfigFields& fields, ModelConfig& config) {
  config.qk_norm = true;
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
  config.norm_topk_prob = fields.boolean("norm_topk_prob", false);
  // Without experts, every layer is dense.
  config.experts = parse_expert_count(fields, "num_experts", "num_local_experts", kQwen3Moe.experts, 0);
  config.sparse = parse_sparse_layers(fields, config);
  parse_router(fields, config);
  if (fields.boolean("use_sliding_window", false)) {
    const bool given_null = fields.contains("sliding_window") && !fields.has("sliding_window");
    config.sliding_window = fields.integer("sliding_window", given_null ? 0 : kSlidingWindow);
  }
}

void parse_mixtral(const ConfigFields& fields, ModelConfig& config) {
  require(!fields.boolean("attention_bias", false),
          "{}: attention_bias: mixtral's projections have no biases; use model_type qwen3_moe",
          fields.where());
  require(fields.boolean("norm_topk_prob", true),
          "{}: norm_topk_prob: mixtral always renormalises; use model_type qwen3_moe", fields.where());
  config.norm_topk_prob = true;
  config.experts = parse_expert_count(fields, "num_local_experts", "num_experts", kMixtral.experts, 1);
  config.sparse.assign(config.layers, true);
  parse_router(fields, config);
  if (fields.boolean("use_sliding_window", true)) {
    config.sliding_window = fields.integer("sliding_window", 0);
  }
}

void parse_expert_groups(const ConfigFields& fields, ModelConfig& config) {
  config.expert_groups = fields.integer("n_group", 1);
  config.top_groups = fields.integer("topk_group", 1);
  require(config.top_groups <= config.expert_groups, "{}: topk_group {} is more than n_group {}",
          fields.where(), config.top_groups, config.expert_groups);
  if (config.expert_groups == 1) {
    return;
  }
  // A group is judged by its two best experts.
  const std::int64_t size = config.experts / config.expert_groups;
  require(config.experts % config.expert_groups == 0 && size >= 2,
          "{}: n_group {} must divide n_routed_experts {} into groups of 2 or more", fields.where(),
          config.expert_groups, config.experts);
  require(config.experts_per_token <= config.top_groups * size,
          "{}: num_experts_per_tok {} is more than the {} experts of topk_group {} groups", fields.where(),
          config.experts_per_token, config.top_groups * size, config.top_groups);
}

// The mixture of experts of DeepSeek-V3 (DeepSeek-AI, 2024, arXiv:2412.19437), which other families have
// taken over: dense layers first, shared experts, sigmoid scores with a bias for the choice, and groups.
void parse_deepseek_moe(const ConfigFields& fields, ModelConfig& config) {
  const std::string scoring = fields.text("scoring_func", "sigmoid");
  require(scoring == "sigmoid" || scoring == "noaux_tc",
          "{}: scoring_func \"{}\" is not built for this model_type; sigmoid is", fields.where(), scoring);
  const std::string method = fields.text("topk_method", "noaux_tc");
  require(method == "noaux_tc", "{}: topk_method \"{}\" is not built; noaux_tc is", fields.where(), method);
  require(fields.integer("moe_layer_freq", 1) == 1, "{}: moe_layer_freq is not built; it must be 1",
          fields.where());
  require(fields.boolean("moe_router_enable_expert_bias", true),
          "{}: moe_router_enable_expert_bias: routers of this model_type always have the bias",
          fields.where());
  config.scoring = kernels::Scoring::sigmoid;
  config.expert_bias = true;
  parse_expert_groups(fields, config);
  const std::int64_t dense =
      fields.integer("first_k_dense_replace", config.family == Family::dots1 ? 0 : 1, 0);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    config.sparse.push_back(layer >= dense);
  }
}

void parse_shared_experts(const ConfigFields& fields, std::int64_t count, ModelConfig& config) {
  require(count <= ConfigFields::kMaxSize / config.moe_intermediate_size,
          "{}: n_shared_experts {} times moe_intermediate_size {} is too large", fields.where(), count,
          config.moe_intermediate_size);
  config.shared_expert_intermediate_size = count * config.moe_intermediate_size;
}

// Layers from max_window_layers on have the window, unless layer_types says which.
std::int64_t dots1_window(const ConfigFields& fields, const ModelConfig& config) {
  const bool given_null = fields.contains("sliding_window") && !fields.has("sliding_window");
  const std::int64_t window = fields.integer("sliding_window", given_null ? 0 : kSlidingWindow);
  const std::int64_t first = fields.integer("max_window_layers", kDots1MaxWindowLayers, 0);
  if (const nlohmann::json* types = fields.find("layer_types"); types != nullptr) {
    return types->is_array() && !types->empty() && types->front() == "sliding_attention" ? window : 0;
  }
  require(
      window == 0 || first == 0 || first >= config.layers,
      "{}: max_window_layers {} gives the sliding window to some of the {} layers; layers that differ are "
      "not built",
      fields.where(), first, config.layers);
  return first == 0 ? window : 0;
}

void parse_dots1(const ConfigFields& fields, ModelConfig& config) {
  config.qk_norm = true;
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
  config.norm_topk_prob = fields.boolean("norm_topk_prob", false);
  config.experts = fields.required_integer("n_routed_experts", 1, kMaxExperts);
  parse_shared_experts(fields, fields.required_integer("n_shared_experts", 0), config);
  config.sliding_window = dots1_window(fields, config);
}

void parse_glm4_moe(const ConfigFields& fields, ModelConfig& config) {
  config.qk_norm = fields.boolean("use_qk_norm", false);
  config.qkv_bias = fields.boolean("attention_bias", false);  // never on the output projection
  config.norm_topk_prob = fields.boolean("norm_topk_prob", true);
  config.experts = fields.integer("n_routed_experts", kGlm4Moe.experts, 1, kMaxExperts);
  parse_shared_experts(fields, fields.integer("n_shared_experts", 1, 0), config);
  config.prediction_layers = fields.integer("num_nextn_predict_layers", 0, 0, kMaxPredictionLayers);
}

void parse_rotary(const ConfigFields& fields, const Defaults& defaults, ModelConfig& config) {
  const double factor = partial_rotary_factor(fields, defaults.partial_rotary_factor);
  require(factor == 1.0 || config.family == Family::glm4_moe,
          "{}: partial_rotary_factor is not built for this model_type; it must be 1", fields.where());
  const auto rotary_dim = static_cast<std::int64_t>(static_cast<double>(config.head_dim) * factor);
  require(rotary_dim >= 2 && rotary_dim % 2 == 0,
          "{}: partial_rotary_factor {} of head_dim {} is {} elements; rotary embedding turns pairs",
          fields.where(), factor, config.head_dim, rotary_dim);
  config.rotary =
      parse_rotary_settings(fields, rotary_dim, config.max_position_embeddings, defaults.rope_theta);
  config.inverse_frequencies = inverse_frequencies(config.rotary, config.max_position_embeddings);
  config.rotary_attention_factor = static_cast<float>(config.rotary.attention_factor);
}

}  // namespace

ModelConfig parse_model_config(const nlohmann::json& source, const std::string& where) {
  const ConfigFields fields(source, where);
  ModelConfig config;
  config.family = parse_family(fields);
  refuse_what_is_not_built(fields);
  const Defaults& defaults = defaults_of(config.family);
  parse_sizes(fields, defaults, config);
  parse_heads(fields, defaults, config);
  switch (config.family) {
    case Family::qwen2_moe:
      parse_qwen2_moe(fields, config);
      break;
    case Family::qwen3_moe:
      parse_qwen3_moe(fields, config);
      break;
    case Family::mixtral:
      parse_mixtral(fields, config);
      break;
    case Family::dots1:
      parse_dots1(fields, config);
      break;
    case Family::glm4_moe:
      parse_glm4_moe(fields, config);
      break;
  }
  parse_experts_per_token(fields, defaults, config);
  if (config.family == Family::dots1 || config.family == Family::glm4_moe) {
    parse_deepseek_moe(fields, config);
  }
  check_layer_types(fields, config);
  parse_rotary(fields, defaults, config);
  config.notes = config.rotary.notes;
  fields.refuse_slips(hugging_face_fields(), config.notes);
  config.source = source;
  return config;
}

ModelConfig read_model_config(const std::filesystem::path& config_json) {
  return parse_model_config(read_strict_json(config_json), config_json.string());
}

}  // namespace expedite::model
