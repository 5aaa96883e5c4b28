// What Hugging Face's configuration class of each family holds before config.json is read.
#pragma once

#include <cstdint>

#include "expedite/base/error.h"
#include "expedite/model/config.h"

namespace expedite::model {

struct Defaults {
  std::int64_t vocab_size;
  std::int64_t hidden_size;
  std::int64_t intermediate_size;
  std::int64_t layers;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t max_position_embeddings;
  std::int64_t experts;             // 0: no default
  std::int64_t experts_per_token;   // 0: no default
  std::int64_t expert_size;         // FFN of an expert; 0: that of a dense layer
  std::int64_t shared_expert_size;  // qwen2_moe
  double rms_norm_eps;
  double rope_theta;
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

/// The family's; lives as long as the program.
[[nodiscard]] inline const Defaults& defaults_of(Family family) {
  switch (family) {
    case Family::qwen2_moe:
      return kQwen2Moe;
    case Family::qwen3_moe:
      return kQwen3Moe;
    case Family::mixtral:
      return kMixtral;
    case Family::dots1:
      return kDots1;
    case Family::glm4_moe:
      return kGlm4Moe;
  }
  fail("no model family {}", static_cast<int>(family));
}

}  // namespace expedite::model
