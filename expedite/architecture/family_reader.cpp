#include "expedite/architecture/family_reader.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "expedite/architecture/rotary_scaling.h"
#include "expedite/base/error.h"
#include "expedite/base/text.h"

namespace expedite::architecture {

void read_sizes(const ConfigFields& fields, const Defaults& defaults, ModelConfig& config) {
  config.vocab_size = fields.integer("vocab_size", defaults.vocab_size);
  config.hidden_size = fields.integer("hidden_size", defaults.hidden_size);
  config.intermediate_size = fields.integer("intermediate_size", defaults.intermediate_size);
  config.moe_intermediate_size = defaults.expert_size > 0
                                     ? fields.integer("moe_intermediate_size", defaults.expert_size)
                                     : config.intermediate_size;
  config.layers = fields.integer("num_hidden_layers", defaults.layers, 1, kMaxLayers);
  config.sparse.assign(static_cast<std::size_t>(config.layers), false);
  config.windowed.assign(static_cast<std::size_t>(config.layers), false);
  config.max_position_embeddings =
      fields.integer("max_position_embeddings", defaults.max_position_embeddings);
  config.rms_norm_eps =
      static_cast<float>(fields.number("rms_norm_eps", defaults.rms_norm_eps, kSmallestEpsilon));
  config.initializer_range = static_cast<float>(fields.number("initializer_range", 0.02, 0.0));
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
}

void read_heads(const ConfigFields& fields, const Defaults& defaults, ModelConfig& config) {
  config.heads = fields.integer("num_attention_heads", defaults.heads);
  // An explicit null means as many key/value heads as query heads; an absent field means the family's
  // default.
  const bool as_many = fields.contains("num_key_value_heads") || defaults.kv_heads == 0;
  config.kv_heads = fields.integer("num_key_value_heads", as_many ? config.heads : defaults.kv_heads);
  require(config.heads % config.kv_heads == 0,
          "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", fields.where(),
          config.heads, config.kv_heads);
  std::optional<std::int64_t> head_dim = fields.optional_integer("head_dim");
  if (!fields.contains("head_dim") && defaults.head_dim > 0) {
    head_dim = defaults.head_dim;
  }
  require(head_dim.has_value() || config.hidden_size % config.heads == 0,
          "{}: head_dim is not given, and hidden_size {} is not a multiple of num_attention_heads {}",
          fields.where(), config.hidden_size, config.heads);
  config.head_dim = head_dim.value_or(config.hidden_size / config.heads);
  require(config.head_dim % 2 == 0, "{}: head_dim {} is odd; rotary embedding turns pairs", fields.where(),
          config.head_dim);
  require(config.head_dim <= kMaxHeadDim, "{}: head_dim {} is beyond {}", fields.where(), config.head_dim,
          kMaxHeadDim);
  config.value_dim = config.head_dim;
  require(config.qkv_size() <= ConfigFields::kMaxSize,
          "{}: num_attention_heads x head_dim is too large: query, key and value take {} columns",
          fields.where(), config.qkv_size());
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
}

void read_latent_heads(const ConfigFields& fields, const Defaults& defaults, ModelConfig& config) {
  constexpr std::int64_t kQueryRank = 1536;
  constexpr std::int64_t kRank = 512;
  constexpr std::int64_t kHeadDim = 128;
  constexpr std::int64_t kRopeDim = 64;
  config.attention = AttentionKind::latent;
  config.heads = fields.integer("num_attention_heads", defaults.heads);
  config.kv_heads = config.heads;
  if (const std::int64_t named = fields.integer("num_key_value_heads", config.heads); named != config.heads) {
    config.notes.push_back(
        fmt::format("{}: num_key_value_heads {} has no effect: with latent attention each of the {} heads "
                    "has a key of its own",
                    fields.where(), named, config.heads));
  }
  // An explicit null: queries are not compressed.
  config.q_lora_rank = fields.integer("q_lora_rank", fields.contains("q_lora_rank") ? 0 : kQueryRank);
  config.kv_lora_rank = fields.integer("kv_lora_rank", kRank);
  config.qk_nope_head_dim = fields.integer("qk_nope_head_dim", kHeadDim, 1, kMaxHeadDim);
  config.qk_rope_head_dim = fields.integer("qk_rope_head_dim", kRopeDim, 1, kMaxHeadDim);
  config.value_dim = fields.integer("v_head_dim", kHeadDim, 1, kMaxHeadDim);
  config.head_dim = config.qk_nope_head_dim + config.qk_rope_head_dim;
  require(config.qk_rope_head_dim % 2 == 0, "{}: qk_rope_head_dim {} is odd; rotary embedding turns pairs",
          fields.where(), config.qk_rope_head_dim);
  require(fields.integer("qk_head_dim", config.head_dim) == config.head_dim,
          "{}: qk_head_dim must be qk_nope_head_dim {} + qk_rope_head_dim {}", fields.where(),
          config.qk_nope_head_dim, config.qk_rope_head_dim);
  require(config.qkv_size() <= ConfigFields::kMaxSize,
          "{}: num_attention_heads {} is too large: query, key and value take {} columns", fields.where(),
          config.heads, config.qkv_size());
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
}

std::int64_t read_expert_count(const ConfigFields& fields, const char* field, const char* other_field,
                               std::int64_t default_value, std::int64_t lowest) {
  const std::optional<std::int64_t> count = fields.optional_integer(field, lowest, kMaxExperts);
  const std::optional<std::int64_t> other = fields.optional_integer(other_field, lowest, kMaxExperts);
  require(!count || !other || *count == *other, "{}: {} is {} and {} is {}; remove one", fields.where(),
          field, count.value_or(0), other_field, other.value_or(0));
  return count ? *count : other.value_or(default_value);
}

void read_experts_per_token(const ConfigFields& fields, const Defaults& defaults, ModelConfig& config) {
  config.experts_per_token = defaults.experts_per_token > 0
                                 ? fields.integer("num_experts_per_tok", defaults.experts_per_token)
                                 : fields.required_integer("num_experts_per_tok");
  require(config.experts == 0 || config.experts_per_token <= config.experts,
          "{}: num_experts_per_tok {} is more than the {} experts", fields.where(), config.experts_per_token,
          config.experts);
  config.router_aux_loss_coef =
      static_cast<float>(fields.number("router_aux_loss_coef", defaults.router_aux_loss_coef, 0.0));
  config.routed_scaling_factor = static_cast<float>(fields.number(
      "routed_scaling_factor", config.family == Family::deepseek_v3 ? 2.5 : 1.0, kSmallestEpsilon));
}

void read_own_router(const ConfigFields& fields, ModelConfig& config) {
  const std::string scoring = fields.text("scoring_func", "softmax");
  require(scoring == "softmax" || scoring == "sigmoid",
          "{}: scoring_func \"{}\" is not built; softmax and sigmoid are", fields.where(), scoring);
  config.scoring = scoring == "softmax" ? Scoring::softmax : Scoring::sigmoid;
  config.expert_bias = fields.boolean("moe_router_enable_expert_bias", false);
}

void read_sparse_layers(const ConfigFields& fields, ModelConfig& config) {
  const std::int64_t step = fields.integer("decoder_sparse_step", 1);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    config.sparse[layer] = config.experts > 0 && (layer + 1) % step == 0;
  }
  const nlohmann::json* dense = fields.find("mlp_only_layers");
  if (dense == nullptr) {
    return;
  }
  require(dense->is_array(), "{}: mlp_only_layers must be a list of layer numbers, not {}", fields.where(),
          excerpt(*dense));
  for (const nlohmann::json& entry : *dense) {
    const bool legal =
        entry.is_number_unsigned() || (entry.is_number_integer() && entry.get<std::int64_t>() >= 0);
    require(legal, "{}: mlp_only_layers must list layer numbers from 0, not {}", fields.where(),
            excerpt(entry));
    // Numbers beyond the last layer are legal: shortened models keep the list of the long one.
    if (const auto layer = entry.get<std::uint64_t>(); layer < config.sparse.size()) {
      config.sparse[layer] = false;
    }
  }
}

std::int64_t read_window(const ConfigFields& fields, std::int64_t default_window) {
  const bool given_null = fields.contains("sliding_window") && !fields.has("sliding_window");
  return fields.integer("sliding_window", given_null ? 0 : default_window);
}

std::vector<bool> layers_from(std::int64_t first, std::int64_t layers) {
  std::vector<bool> chosen;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    chosen.push_back(layer >= first);
  }
  return chosen;
}

void read_layer_types(const ConfigFields& fields, const std::vector<bool>& otherwise, ModelConfig& config) {
  config.windowed = otherwise;
  if (const nlohmann::json* types = fields.find("layer_types")) {
    require(types->is_array() && std::ssize(*types) == config.layers,
            "{}: layer_types must list all {} layers, each \"sliding_attention\" or \"full_attention\"",
            fields.where(), config.layers);
    for (std::size_t layer = 0; layer < types->size(); ++layer) {
      const nlohmann::json& type = (*types)[layer];
      require(type == "sliding_attention" || type == "full_attention",
              "{}: layer_types must be \"sliding_attention\" or \"full_attention\" for layer {}, not {}",
              fields.where(), layer, excerpt(type));
      config.windowed[layer] = type == "sliding_attention";
    }
    const bool any = std::ranges::find(config.windowed, true) != config.windowed.end();
    require(!any || config.sliding_window > 0,
            "{}: layer_types gives layers a sliding window, but sliding_window is not set", fields.where());
  }
  if (config.sliding_window == 0) {
    config.windowed.assign(config.windowed.size(), false);
  }
  if (config.windowed_layers() == 0) {
    config.sliding_window = 0;
  }
}

void window_everywhere(const ConfigFields& fields, ModelConfig& config) {
  config.windowed.assign(config.windowed.size(), config.sliding_window > 0);
  const nlohmann::json* types = fields.find("layer_types");
  if (types == nullptr) {
    return;
  }
  const std::string_view expected = config.sliding_window > 0 ? "sliding_attention" : "full_attention";
  require(
      types->is_array() && std::ranges::all_of(*types, [&](const auto& type) { return type == expected; }),
      "{}: layer_types must be \"{}\" for every layer, as sliding_window {} says: this model_type gives all "
      "layers the same mask",
      fields.where(), expected, config.sliding_window);
}

void read_rotary(const ConfigFields& fields, std::int64_t turned, double default_factor,
                 const Defaults& defaults, ModelConfig& config) {
  const double factor = partial_rotary_factor(fields, default_factor);
  if (factor != 1.0 && config.family != Family::glm4_moe) {
    config.untrained.emplace_back("partial_rotary_factor is not built for this model_type; it must be 1");
  }
  const auto rotary_dim = static_cast<std::int64_t>(static_cast<double>(turned) * factor);
  require(rotary_dim >= 2 && rotary_dim % 2 == 0,
          "{}: partial_rotary_factor {} of head_dim {} is {} elements; rotary embedding turns pairs",
          fields.where(), factor, turned, rotary_dim);
  config.rotary =
      parse_rotary_settings(fields, rotary_dim, config.max_position_embeddings, defaults.rope_theta);
  config.rotary_attention_factor = static_cast<float>(config.rotary.attention_factor);
  config.notes.insert(config.notes.end(), config.rotary.notes.begin(), config.rotary.notes.end());
}

}  // namespace expedite::architecture
