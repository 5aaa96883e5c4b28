// What Hugging Face's configuration class of each family holds before config.json is read.
#pragma once

#include <cstdint>

#include "expedite/architecture/model_config.h"

namespace expedite::architecture {

struct Defaults {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden_size over heads
  std::int64_t max_position_embeddings = 0;
  std::int64_t experts = 0;             // 0: no default
  std::int64_t experts_per_token = 0;   // 0: no default
  std::int64_t expert_size = 0;         // FFN of an expert; 0: that of a dense layer
  std::int64_t shared_expert_size = 0;  // qwen2_moe
  double router_aux_loss_coef = 0.001;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  double partial_rotary_factor = 1.0;
};

inline constexpr Defaults kQwen2Moe = {.vocab_size = 151936,
                                       .hidden_size = 2048,
                                       .intermediate_size = 5632,
                                       .layers = 24,
                                       .heads = 16,
                                       .kv_heads = 16,
                                       .max_position_embeddings = 32768,
                                       .experts = 60,
                                       .experts_per_token = 4,
                                       .expert_size = 1408,
                                       .shared_expert_size = 5632,
                                       .rms_norm_eps = 1e-6,
                                       .rope_theta = 10000.0};

inline constexpr Defaults kQwen3Moe = {.vocab_size = 151936,
                                       .hidden_size = 2048,
                                       .intermediate_size = 6144,
                                       .layers = 24,
                                       .heads = 32,
                                       .kv_heads = 4,
                                       .max_position_embeddings = 32768,
                                       .experts = 128,
                                       .experts_per_token = 8,
                                       .expert_size = 768,
                                       .shared_expert_size = 0,
                                       .rms_norm_eps = 1e-6,
                                       .rope_theta = 10000.0};

inline constexpr Defaults kMixtral = {.vocab_size = 32000,
                                      .hidden_size = 4096,
                                      .intermediate_size = 14336,
                                      .layers = 32,
                                      .heads = 32,
                                      .kv_heads = 8,
                                      .max_position_embeddings = 131072,
                                      .experts = 8,
                                      .experts_per_token = 2,
                                      .expert_size = 0,
                                      .shared_expert_size = 0,
                                      .rms_norm_eps = 1e-5,
                                      .rope_theta = 1e6};

inline constexpr Defaults kDots1 = {.vocab_size = 152064,
                                    .hidden_size = 4608,
                                    .intermediate_size = 10944,
                                    .layers = 62,
                                    .heads = 32,
                                    .kv_heads = 32,
                                    .max_position_embeddings = 2048,
                                    .experts = 0,
                                    .experts_per_token = 0,
                                    .expert_size = 1408,
                                    .shared_expert_size = 0,
                                    .rms_norm_eps = 1e-6,
                                    .rope_theta = 10000.0};

inline constexpr Defaults kGlm4Moe = {.vocab_size = 151552,
                                      .hidden_size = 4096,
                                      .intermediate_size = 10944,
                                      .layers = 46,
                                      .heads = 96,
                                      .kv_heads = 8,
                                      .max_position_embeddings = 131072,
                                      .experts = 128,
                                      .experts_per_token = 8,
                                      .expert_size = 1408,
                                      .shared_expert_size = 0,
                                      .rms_norm_eps = 1e-5,
                                      .rope_theta = 10000.0,
                                      .partial_rotary_factor = 0.5};

inline constexpr Defaults kLlama = {.vocab_size = 32000,
                                    .hidden_size = 4096,
                                    .intermediate_size = 11008,
                                    .layers = 32,
                                    .heads = 32,
                                    .kv_heads = 0,
                                    .max_position_embeddings = 2048,
                                    .rms_norm_eps = 1e-6,
                                    .rope_theta = 10000.0};

inline constexpr Defaults kMistral = {.vocab_size = 32000,
                                      .hidden_size = 4096,
                                      .intermediate_size = 14336,
                                      .layers = 32,
                                      .heads = 32,
                                      .kv_heads = 8,
                                      .max_position_embeddings = 131072,
                                      .rms_norm_eps = 1e-6,
                                      .rope_theta = 10000.0};

inline constexpr Defaults kQwen2 = {.vocab_size = 151936,
                                    .hidden_size = 4096,
                                    .intermediate_size = 22016,
                                    .layers = 32,
                                    .heads = 32,
                                    .kv_heads = 32,
                                    .max_position_embeddings = 32768,
                                    .rms_norm_eps = 1e-6,
                                    .rope_theta = 10000.0};

inline constexpr Defaults kQwen3 = {.vocab_size = 151936,
                                    .hidden_size = 4096,
                                    .intermediate_size = 22016,
                                    .layers = 32,
                                    .heads = 32,
                                    .kv_heads = 32,
                                    .head_dim = 128,
                                    .max_position_embeddings = 32768,
                                    .rms_norm_eps = 1e-6,
                                    .rope_theta = 10000.0};

inline constexpr Defaults kOlmoe = {.vocab_size = 50304,
                                    .hidden_size = 2048,
                                    .intermediate_size = 2048,
                                    .layers = 16,
                                    .heads = 16,
                                    .kv_heads = 0,
                                    .max_position_embeddings = 4096,
                                    .experts = 64,
                                    .experts_per_token = 8,
                                    .router_aux_loss_coef = 0.01,
                                    .rms_norm_eps = 1e-5,
                                    .rope_theta = 10000.0};

inline constexpr Defaults kGptOss = {.vocab_size = 201088,
                                     .hidden_size = 2880,
                                     .intermediate_size = 2880,
                                     .layers = 36,
                                     .heads = 64,
                                     .kv_heads = 8,
                                     .head_dim = 64,
                                     .max_position_embeddings = 131072,
                                     .experts = 128,
                                     .experts_per_token = 4,
                                     .router_aux_loss_coef = 0.9,
                                     .rms_norm_eps = 1e-5,
                                     .rope_theta = 150000.0};

inline constexpr Defaults kDeepseekV2 = {.vocab_size = 32000,
                                         .hidden_size = 4096,
                                         .intermediate_size = 11008,
                                         .layers = 32,
                                         .heads = 32,
                                         .kv_heads = 0,
                                         .max_position_embeddings = 2048,
                                         .experts = 64,
                                         .expert_size = 1407,
                                         .rms_norm_eps = 1e-6,
                                         .rope_theta = 10000.0};

inline constexpr Defaults kDeepseekV3 = {.vocab_size = 129280,
                                         .hidden_size = 7168,
                                         .intermediate_size = 18432,
                                         .layers = 61,
                                         .heads = 128,
                                         .kv_heads = 128,
                                         .max_position_embeddings = 4096,
                                         .experts = 256,
                                         .experts_per_token = 8,
                                         .expert_size = 2048,
                                         .rms_norm_eps = 1e-6,
                                         .rope_theta = 10000.0};

}  // namespace expedite::architecture
