// What the readers of the families share: fields of a config.json that several of them have.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "expedite/architecture/family_defaults.h"
#include "expedite/architecture/model_config.h"
#include "expedite/base/config_fields.h"

namespace expedite::architecture {

constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxExperts = 1 << 16;
constexpr std::int64_t kMaxHeadDim = 1 << 16;
constexpr std::int64_t kMaxPredictionLayers = 16;
constexpr double kSmallestEpsilon = 1e-30;

/// Vocabulary, hidden size, layers, norms, embedding.
void read_sizes(const ConfigFields& fields, const Defaults& defaults, ModelConfig& config);
/// Of grouped-query attention.
void read_heads(const ConfigFields& fields, const Defaults& defaults, ModelConfig& config);
/// Of multi-head latent attention.
void read_latent_heads(const ConfigFields& fields, const Defaults& defaults, ModelConfig& config);

[[nodiscard]] std::int64_t read_expert_count(const ConfigFields& fields, const char* field,
                                             const char* other_field, std::int64_t default_value,
                                             std::int64_t lowest);
void read_experts_per_token(const ConfigFields& fields, const Defaults& defaults, ModelConfig& config);
/// scoring_func and moe_router_enable_expert_bias, which are this project's own for families that have not
/// got them in Hugging Face's classes.
void read_own_router(const ConfigFields& fields, ModelConfig& config);
/// Layer i is sparse when it is not listed in mlp_only_layers and i + 1 is a multiple of decoder_sparse_step.
void read_sparse_layers(const ConfigFields& fields, ModelConfig& config);
/// sliding_window: 0 where the file says null, and `default_window` where it says nothing.
[[nodiscard]] std::int64_t read_window(const ConfigFields& fields, std::int64_t default_window);
/// Of so many layers those from `first` on.
[[nodiscard]] std::vector<bool> layers_from(std::int64_t first, std::int64_t layers);
/// Which layers layer_types gives the window; without the field those that `otherwise` says.
void read_layer_types(const ConfigFields& fields, const std::vector<bool>& otherwise, ModelConfig& config);
/// All layers have the window, and layer_types may only agree.
void window_everywhere(const ConfigFields& fields, ModelConfig& config);

void read_rotary(const ConfigFields& fields, std::int64_t turned, double default_factor,
                 const Defaults& defaults, ModelConfig& config);

// One per group of families; each reads all that its families have.
void read_llama(const ConfigFields& fields, ModelConfig& config);
void read_mistral(const ConfigFields& fields, ModelConfig& config);
void read_qwen2(const ConfigFields& fields, ModelConfig& config);
void read_qwen3(const ConfigFields& fields, ModelConfig& config);
void read_qwen2_moe(const ConfigFields& fields, ModelConfig& config);
void read_qwen3_moe(const ConfigFields& fields, ModelConfig& config);
void read_mixtral(const ConfigFields& fields, ModelConfig& config);
void read_olmoe(const ConfigFields& fields, ModelConfig& config);
void read_gpt_oss(const ConfigFields& fields, ModelConfig& config);
void read_dots1(const ConfigFields& fields, ModelConfig& config);
void read_glm4_moe(const ConfigFields& fields, ModelConfig& config);
void read_deepseek_v2(const ConfigFields& fields, ModelConfig& config);
void read_deepseek_v3(const ConfigFields& fields, ModelConfig& config);
void read_gpt2(const ConfigFields& fields, ModelConfig& config);

}  // namespace expedite::architecture
