// Readers of the families with experts in the manner of Mixtral and Qwen.
#include "expedite/architecture/family_reader.h"
#include "expedite/base/error.h"

namespace expedite::architecture {
namespace {

constexpr std::int64_t kWindow = 4096;

}  // namespace

void read_qwen2_moe(const ConfigFields& fields, ModelConfig& config) {
  read_sizes(fields, kQwen2Moe, config);
  read_heads(fields, kQwen2Moe, config);
  config.qkv_bias = fields.boolean("qkv_bias", true);
  config.norm_topk_prob = fields.boolean("norm_topk_prob", false);
  config.experts = read_expert_count(fields, "num_experts", "num_local_experts", kQwen2Moe.experts, 0);
  config.shared_expert_intermediate_size =
      fields.integer("shared_expert_intermediate_size", kQwen2Moe.shared_expert_size);
  config.shared_expert_gate = true;
  read_sparse_layers(fields, config);
  read_own_router(fields, config);
  read_experts_per_token(fields, kQwen2Moe, config);
  // Versions of Hugging Face differ in which layers then have the window.
  require(!fields.boolean("use_sliding_window", false),
          "{}: use_sliding_window is not built for qwen2_moe; it must be false", fields.where());
  window_everywhere(fields, config);
  read_rotary(fields, config.head_dim, 1.0, kQwen2Moe, config);
}

// Hugging Face's eager and SDPA attention mask every layer alike: max_window_layers is only read by its
// FlashAttention path.
void read_qwen3_moe(const ConfigFields& fields, ModelConfig& config) {
  read_sizes(fields, kQwen3Moe, config);
  read_heads(fields, kQwen3Moe, config);
  config.qk_norm = QkNorm::head;
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
  config.norm_topk_prob = fields.boolean("norm_topk_prob", false);
  // Without experts, every layer is dense.
  config.experts = read_expert_count(fields, "num_experts", "num_local_experts", kQwen3Moe.experts, 0);
  read_sparse_layers(fields, config);
  read_own_router(fields, config);
  read_experts_per_token(fields, kQwen3Moe, config);
  if (fields.boolean("use_sliding_window", false)) {
    config.sliding_window = read_window(fields, kWindow);
  }
  window_everywhere(fields, config);
  read_rotary(fields, config.head_dim, 1.0, kQwen3Moe, config);
}

void read_mixtral(const ConfigFields& fields, ModelConfig& config) {
  read_sizes(fields, kMixtral, config);
  read_heads(fields, kMixtral, config);
  require(!fields.boolean("attention_bias", false),
          "{}: attention_bias: mixtral's projections have no biases; use model_type qwen3_moe",
          fields.where());
  require(fields.boolean("norm_topk_prob", true),
          "{}: norm_topk_prob: mixtral always renormalises; use model_type qwen3_moe", fields.where());
  config.norm_topk_prob = true;
  config.experts = read_expert_count(fields, "num_local_experts", "num_experts", kMixtral.experts, 1);
  config.sparse.assign(config.sparse.size(), true);
  read_own_router(fields, config);
  read_experts_per_token(fields, kMixtral, config);
  if (fields.boolean("use_sliding_window", true)) {
    config.sliding_window = fields.integer("sliding_window", 0);
  }
  window_everywhere(fields, config);
  read_rotary(fields, config.head_dim, 1.0, kMixtral, config);
}

void read_olmoe(const ConfigFields& fields, ModelConfig& config) {
  read_sizes(fields, kOlmoe, config);
  read_heads(fields, kOlmoe, config);
  config.qk_norm = QkNorm::whole;
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
  if (fields.has("clip_qkv")) {
    config.untrained.emplace_back("clip_qkv is not built; it must be null");
  }
  config.norm_topk_prob = fields.boolean("norm_topk_prob", false);
  config.experts = read_expert_count(fields, "num_experts", "num_local_experts", kOlmoe.experts, 1);
  config.sparse.assign(config.sparse.size(), true);
  read_experts_per_token(fields, kOlmoe, config);
  read_rotary(fields, config.head_dim, 1.0, kOlmoe, config);
}

void read_gpt_oss(const ConfigFields& fields, ModelConfig& config) {
  constexpr std::int64_t kGptOssWindow = 128;
  constexpr double kLimit = 7.0;
  read_sizes(fields, kGptOss, config);
  read_heads(fields, kGptOss, config);
  config.mlp = MlpKind::clamped;
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", true);
  config.mlp_bias = config.router_bias = config.attention_sinks = true;
  config.norm_topk_prob = true;  // softmax over the chosen logits
  require(fields.number("swiglu_limit", kLimit, 0.0) == kLimit,
          "{}: swiglu_limit must be {}, which transformers uses whatever the file says", fields.where(),
          kLimit);
  config.experts = read_expert_count(fields, "num_local_experts", "num_experts", kGptOss.experts, 1);
  config.sparse.assign(config.sparse.size(), true);
  // Its own name for it, which older files have beside or instead of the usual one.
  const std::int64_t other = fields.integer("experts_per_token", kGptOss.experts_per_token);
  require(!fields.has("num_experts_per_tok") || !fields.has("experts_per_token") ||
              fields.integer("num_experts_per_tok", other) == other,
          "{}: num_experts_per_tok and experts_per_token {} contradict each other; remove one",
          fields.where(), other);
  Defaults defaults = kGptOss;
  defaults.experts_per_token = other;
  read_experts_per_token(fields, defaults, config);
  config.sliding_window = read_window(fields, kGptOssWindow);
  std::vector<bool> alternating;  // beginning with the first
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    alternating.push_back(layer % 2 == 0);
  }
  read_layer_types(fields, alternating, config);
  read_rotary(fields, config.head_dim, 1.0, defaults, config);
}

}  // namespace expedite::architecture
