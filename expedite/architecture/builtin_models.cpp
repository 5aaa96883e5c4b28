// Published models by name, each as the fields of its Hugging Face config.json that differ from the family's
// defaults, or with the sizes of the paper named beside it.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/architecture/model_config.h"

namespace expedite::architecture {
namespace {

struct Published {
  std::string_view name;
  std::string_view config;
};

constexpr Published kPublished[] = {
    {"deepseek-v2", R"({"model_type": "deepseek_v2", "vocab_size": 102400, "hidden_size": 5120,
      "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_hidden_layers": 60,
      "num_attention_heads": 128, "num_key_value_heads": 128, "max_position_embeddings": 163840,
      "n_routed_experts": 160, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
      "topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 3, "routed_scaling_factor": 16.0,
      "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                       "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707}})"},
    {"deepseek-v3", R"({"model_type": "deepseek_v3", "max_position_embeddings": 163840,
      "num_nextn_predict_layers": 1,
      "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                       "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}})"},
    {"kimi-k2", R"({"model_type": "kimi_k2", "vocab_size": 163840, "num_attention_heads": 64,
      "num_key_value_heads": 64, "max_position_embeddings": 131072, "n_routed_experts": 384, "n_group": 1,
      "topk_group": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 2.827, "rope_theta": 50000.0,
      "rope_scaling": {"type": "yarn", "factor": 32, "original_max_position_embeddings": 4096, "beta_fast": 1,
                       "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}})"},
    {"qwen3-30b-a3b", R"({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
      "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
      "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
      "max_position_embeddings": 40960, "rope_theta": 1000000.0})"},
    {"qwen3-235b-a22b", R"({"model_type": "qwen3_moe", "hidden_size": 4096, "intermediate_size": 12288,
      "moe_intermediate_size": 1536, "num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4,
      "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
      "max_position_embeddings": 40960, "rope_theta": 1000000.0})"},
    {"mixtral-8x7b", R"({"model_type": "mixtral", "max_position_embeddings": 32768})"},
    {"mixtral-8x22b", R"({"model_type": "mixtral", "vocab_size": 32768, "hidden_size": 6144,
      "intermediate_size": 16384, "num_hidden_layers": 56, "num_attention_heads": 48,
      "max_position_embeddings": 65536})"},
    {"gpt-oss-120b", R"({"model_type": "gpt_oss"})"},
    // Pangu Ultra MoE (Huawei, 2025, arXiv:2505.04519), whose norms behind each half of a layer are left out.
    {"pangu-ultra-moe-718b", R"({"model_type": "deepseek_v3", "vocab_size": 153600, "hidden_size": 7680,
      "num_nextn_predict_layers": 1, "n_group": 1, "topk_group": 1})"},
    // Language models are few-shot learners (Brown et al., 2020, arXiv:2005.14165).
    {"gpt3-175b", R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 12288, "n_head": 96, "n_layer": 96,
      "n_positions": 2048})"},
    {"llama2-13b", R"({"model_type": "llama", "hidden_size": 5120, "intermediate_size": 13824,
      "num_hidden_layers": 40, "num_attention_heads": 40, "max_position_embeddings": 4096,
      "rms_norm_eps": 1e-05})"},
    {"llama2-70b", R"({"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
      "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-05})"},
    {"llama3-8b", R"({"model_type": "llama", "vocab_size": 128256, "intermediate_size": 14336,
      "num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-05,
      "rope_theta": 500000.0})"},
    {"llama3-70b", R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192,
      "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
      "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "rope_theta": 500000.0})"},
    {"llama3-405b", R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 16384,
      "intermediate_size": 53248, "num_hidden_layers": 126, "num_attention_heads": 128,
      "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05,
      "rope_theta": 500000.0,
      "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                       "original_max_position_embeddings": 8192}})"},
};

const std::vector<ModelConfig>& models() {
  static const std::vector<ModelConfig> kModels = [] {
    std::vector<ModelConfig> read;
    for (const Published& published : kPublished) {
      const std::string name(published.name);
      read.push_back(parse_model_config(nlohmann::json::parse(published.config), name));
      read.back().name = name;
    }
    return read;
  }();
  return kModels;
}

}  // namespace

const ModelConfig* find_builtin_model(std::string_view name) {
  const auto found = std::ranges::find(models(), name, &ModelConfig::name);
  return found == models().end() ? nullptr : &*found;
}

std::vector<std::string> builtin_model_names() {
  std::vector<std::string> names;
  for (const Published& published : kPublished) {
    names.emplace_back(published.name);
  }
  return names;
}

}  // namespace expedite::architecture
