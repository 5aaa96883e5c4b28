// Readers of DeepSeek's families, and of those that took over its mixture of experts.
#include <algorithm>
#include <cmath>

#include "expedite/architecture/family_reader.h"
#include "expedite/base/error.h"

namespace expedite::architecture {
namespace {

void read_shared_experts(const ConfigFields& fields, std::int64_t count, ModelConfig& config) {
  require(count <= ConfigFields::kMaxSize / config.moe_intermediate_size,
          "{}: n_shared_experts {} times moe_intermediate_size {} is too large", fields.where(), count,
          config.moe_intermediate_size);
  config.shared_expert_intermediate_size = count * config.moe_intermediate_size;
}

/// Groups are legal where each has `smallest` experts or more.
void read_expert_groups(const ConfigFields& fields, std::int64_t groups, std::int64_t top_groups,
                        std::int64_t smallest, ModelConfig& config) {
  config.expert_groups = fields.integer("n_group", groups);
  config.top_groups = fields.integer("topk_group", std::min(top_groups, config.expert_groups));
  require(config.top_groups <= config.expert_groups, "{}: topk_group {} is more than n_group {}",
          fields.where(), config.top_groups, config.expert_groups);
  if (config.expert_groups == 1) {
    return;
  }
  const std::int64_t size = config.experts / config.expert_groups;
  require(config.experts % config.expert_groups == 0 && size >= smallest,
          "{}: n_group {} must divide n_routed_experts {} into groups of {} or more", fields.where(),
          config.expert_groups, config.experts, smallest);
  require(config.experts_per_token <= config.top_groups * size,
          "{}: num_experts_per_tok {} is more than the {} experts of topk_group {} groups", fields.where(),
          config.experts_per_token, config.top_groups * size, config.top_groups);
}

void read_first_dense(const ConfigFields& fields, std::int64_t default_count, ModelConfig& config) {
  require(fields.integer("moe_layer_freq", 1) == 1, "{}: moe_layer_freq is not built; it must be 1",
          fields.where());
  const std::int64_t dense = fields.integer("first_k_dense_replace", default_count, 0);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    config.sparse[layer] = config.experts > 0 && layer >= dense;
  }
}

/// The mixture of experts of DeepSeek-V3 (DeepSeek-AI, 2024, arXiv:2412.19437): dense layers first, shared
/// experts, sigmoid scores with a bias for the choice, and groups of experts.
void read_biased_sigmoid(const ConfigFields& fields, std::int64_t groups, std::int64_t top_groups,
                         std::int64_t first_dense, ModelConfig& config) {
  const std::string scoring = fields.text("scoring_func", "sigmoid");
  require(scoring == "sigmoid" || scoring == "noaux_tc",
          "{}: scoring_func \"{}\" is not built for this model_type; sigmoid is", fields.where(), scoring);
  const std::string method = fields.text("topk_method", "noaux_tc");
  require(method == "noaux_tc", "{}: topk_method \"{}\" is not built; noaux_tc is", fields.where(), method);
  require(fields.boolean("moe_router_enable_expert_bias", true),
          "{}: moe_router_enable_expert_bias: routers of this model_type always have the bias",
          fields.where());
  config.scoring = Scoring::sigmoid;
  config.expert_bias = true;
  // A group is judged by its two best experts.
  read_expert_groups(fields, groups, top_groups, 2, config);
  read_first_dense(fields, first_dense, config);
}

}  // namespace

void read_dots1(const ConfigFields& fields, ModelConfig& config) {
  constexpr std::int64_t kWindow = 4096;
  constexpr std::int64_t kMaxWindowLayers = 62;  // as many layers as that model has
  read_sizes(fields, kDots1, config);
  read_heads(fields, kDots1, config);
  config.qk_norm = QkNorm::head;
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
  config.norm_topk_prob = fields.boolean("norm_topk_prob", false);
  config.experts = fields.required_integer("n_routed_experts", 1, kMaxExperts);
  read_shared_experts(fields, fields.required_integer("n_shared_experts", 0), config);
  read_experts_per_token(fields, kDots1, config);
  read_biased_sigmoid(fields, 1, 1, 0, config);
  config.sliding_window = read_window(fields, kWindow);
  const std::int64_t first = fields.integer("max_window_layers", kMaxWindowLayers, 0);
  read_layer_types(fields, layers_from(first, config.layers), config);
  read_rotary(fields, config.head_dim, 1.0, kDots1, config);
}

void read_glm4_moe(const ConfigFields& fields, ModelConfig& config) {
  read_sizes(fields, kGlm4Moe, config);
  read_heads(fields, kGlm4Moe, config);
  config.qk_norm = fields.boolean("use_qk_norm", false) ? QkNorm::head : QkNorm::none;
  config.qkv_bias = fields.boolean("attention_bias", false);  // never on the output projection
  config.norm_topk_prob = fields.boolean("norm_topk_prob", true);
  config.experts = fields.integer("n_routed_experts", kGlm4Moe.experts, 1, kMaxExperts);
  read_shared_experts(fields, fields.integer("n_shared_experts", 1, 0), config);
  config.prediction_layers = fields.integer("num_nextn_predict_layers", 0, 0, kMaxPredictionLayers);
  read_experts_per_token(fields, kGlm4Moe, config);
  read_biased_sigmoid(fields, 1, 1, 1, config);
  window_everywhere(fields, config);
  read_rotary(fields, config.head_dim, kGlm4Moe.partial_rotary_factor, kGlm4Moe, config);
}

void read_deepseek_v2(const ConfigFields& fields, ModelConfig& config) {
  constexpr std::int64_t kSharedExperts = 2;
  read_sizes(fields, kDeepseekV2, config);
  read_latent_heads(fields, kDeepseekV2, config);
  const bool no_experts = fields.contains("n_routed_experts") && !fields.has("n_routed_experts");
  config.experts = no_experts ? 0 : fields.integer("n_routed_experts", kDeepseekV2.experts, 0, kMaxExperts);
  if (config.experts > 0) {
    const bool none_shared = fields.contains("n_shared_experts") && !fields.has("n_shared_experts");
    read_shared_experts(fields, none_shared ? 0 : fields.integer("n_shared_experts", kSharedExperts, 0),
                        config);
    read_experts_per_token(fields, kDeepseekV2, config);
    const std::string scoring = fields.text("scoring_func", "softmax");
    require(scoring == "softmax", "{}: scoring_func \"{}\" is not built for this model_type; softmax is",
            fields.where(), scoring);
    const std::string method = fields.text("topk_method", "greedy");
    require(method == "greedy" || method == "group_limited_greedy",
            "{}: topk_method \"{}\" is not built for this model_type; greedy and group_limited_greedy are",
            fields.where(), method);
    config.norm_topk_prob = false;
    if (fields.boolean("norm_topk_prob", false)) {
      config.notes.push_back(fields.where() +
                             ": norm_topk_prob has no effect on deepseek_v2 in transformers");
    }
    config.group_score = GroupScore::best;
    if (method == "group_limited_greedy") {
      read_expert_groups(fields, 1, 1, 1, config);
    }
  }
  if (fields.boolean("mlp_bias", false)) {
    config.untrained.emplace_back("mlp_bias is not built for deepseek_v2; it must be false");
  }
  read_first_dense(fields, 0, config);
  config.rotary_neighbours = true;
  read_rotary(fields, config.qk_rope_head_dim, 1.0, kDeepseekV2, config);
}

void read_deepseek_v3(const ConfigFields& fields, ModelConfig& config) {
  constexpr std::int64_t kGroups = 8;
  constexpr std::int64_t kTopGroups = 4;
  constexpr std::int64_t kFirstDense = 3;
  read_sizes(fields, kDeepseekV3, config);
  read_latent_heads(fields, kDeepseekV3, config);
  config.norm_topk_prob = fields.boolean("norm_topk_prob", true);
  config.experts = fields.integer("n_routed_experts", kDeepseekV3.experts, 0, kMaxExperts);
  config.prediction_layers = fields.integer("num_nextn_predict_layers", 0, 0, kMaxPredictionLayers);
  if (config.experts > 0) {
    read_shared_experts(fields, fields.integer("n_shared_experts", 1, 0), config);
    read_experts_per_token(fields, kDeepseekV3, config);
    read_biased_sigmoid(fields, kGroups, kTopGroups, kFirstDense, config);
  }
  config.rotary_neighbours = fields.boolean("rope_interleave", true);
  read_rotary(fields, config.qk_rope_head_dim, 1.0, kDeepseekV3, config);
  // With a scaled rotary embedding, mscale_all_dim also sharpens or flattens attention.
  if (config.rotary.scaling != RotaryScaling::none && config.rotary.mscale_all_dim > 0.0) {
    const double mscale = yarn_mscale(config.rotary.factor, config.rotary.mscale_all_dim);
    config.attention_scale =
        static_cast<float>(static_cast<double>(config.attention_scale) * mscale * mscale);
  }
}

}  // namespace expedite::architecture
