// The shape of a model, read from a Hugging Face config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "expedite/kernels/router.h"
#include "expedite/model/rotary_scaling.h"

namespace expedite::model {

enum class Family : std::uint8_t { qwen2_moe, qwen3_moe, mixtral, dots1, glm4_moe };

struct ModelConfig {
  Family family = Family::qwen3_moe;
  std::int64_t vocab_size = 0;             // V
  std::int64_t hidden_size = 0;            // H
  std::int64_t layers = 0;                 // L
  std::int64_t heads = 0;                  // query heads
  std::int64_t kv_heads = 0;               // divides heads
  std::int64_t head_dim = 0;               // D
  std::int64_t intermediate_size = 0;      // FFN of a dense layer
  std::int64_t moe_intermediate_size = 0;  // F, FFN of an expert
  std::int64_t experts = 0;                // E; 0: no sparse layers
  std::int64_t experts_per_token = 0;      // k
  std::vector<bool> sparse;                // [L] which layers have experts
  // FFN of the experts that every token passes through, together; 0: the sparse layers have none.
  std::int64_t shared_expert_intermediate_size = 0;
  bool shared_expert_gate = false;  // their output is multiplied by sigmoid(gate · x)
  bool norm_topk_prob = true;       // gate weights of a token are divided by their sum
  kernels::Scoring scoring = kernels::Scoring::softmax;
  bool expert_bias = false;  // a selection bias per expert, moved by load instead of by gradient
  float routed_scaling_factor = 1.0F;
  std::int64_t expert_groups = 1;  // a token chooses from its best top_groups of so many groups of experts
  std::int64_t top_groups = 1;
  bool qk_norm = false;      // RMSNorm of each query and key head
  bool qkv_bias = false;     // biases on the query, key and value projections
  bool output_bias = false;  // a bias on attention's output projection
  bool tie_word_embeddings = false;
  float rms_norm_eps = 1e-6F;
  float initializer_range = 0.02F;
  float router_aux_loss_coef = 0.0F;
  std::int64_t max_position_embeddings = 0;
  // A token sees itself and sliding_window - 1 tokens before it, in every layer; 0: all before it. Hugging
  // Face's eager and SDPA attention mask every layer alike: max_window_layers is only read by its
  // FlashAttention path.
  std::int64_t sliding_window = 0;
  // Rotary embedding, after rope_theta and rope_scaling have been worked out.
  std::vector<float> inverse_frequencies;  // [rotary.rotary_dim / 2]
  float rotary_attention_factor = 1.0F;    // multiplies cosine and sine
  RotarySettings rotary;  // for inverse_frequencies(rotary, length): dynamic scaling depends on the length

  // Layers for multi-token prediction that a checkpoint may hold behind the last; they are not read.
  std::int64_t prediction_layers = 0;

  /// What in the file contradicts itself or has no effect; whoever reads the file tells it once.
  std::vector<std::string> notes;
  nlohmann::json source;  // config.json as it was read, for writing it back

  [[nodiscard]] std::int64_t query_size() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t kv_size() const { return kv_heads * head_dim; }
  [[nodiscard]] std::int64_t qkv_size() const { return query_size() + 2 * kv_size(); }
};

/// Throws Error naming the field (and `where`, the file or section) that is missing, of a wrong type, out of
/// range, or asks for something that is not built; never guesses.
[[nodiscard]] ModelConfig parse_model_config(const nlohmann::json& source, const std::string& where);
[[nodiscard]] ModelConfig read_model_config(const std::filesystem::path& config_json);

}  // namespace expedite::model
