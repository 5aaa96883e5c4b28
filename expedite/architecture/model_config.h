// The one description of a model: what a Hugging Face config.json says of it, for planning, training and
// simulation alike.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/architecture/rotary_settings.h"

namespace expedite::architecture {

/// By model_type in config.json. What differs between families beyond the fields below are defaults and names
/// of tensors.
enum class Family : std::uint8_t {
  llama,
  mistral,
  qwen2,
  qwen3,
  qwen2_moe,
  qwen3_moe,
  mixtral,
  olmoe,
  gpt_oss,
  dots1,
  glm4_moe,
  deepseek_v2,
  deepseek_v3,
  gpt2,
};

enum class AttentionKind : std::uint8_t {
  grouped_query,
  latent,  // multi-head latent attention (DeepSeek-AI, 2024, arXiv:2405.04434)
};

enum class QkNorm : std::uint8_t {
  none,
  head,   // RMSNorm of each query and key head
  whole,  // of all query heads of a token together, and of all key heads
};

enum class MlpKind : std::uint8_t {
  gated,    // two projections H -> F, one through the activation, their product -> H (SwiGLU)
  clamped,  // the same with both limited, and up + 1 instead of up (gpt_oss)
  plain,    // H -> F -> H with an activation between (GPT)
};

enum class Scoring : std::uint8_t { softmax, sigmoid };

enum class GroupScore : std::uint8_t {
  best_two,  // the sum of a group's two best biased scores (DeepSeek-V3)
  best,      // the best score (DeepSeek-V2)
};

enum class LayerKind : std::uint8_t { dense, moe };

/// V vocabulary, H hidden, D head size, F FFN, E routed experts, k experts per token, L layers.
struct ModelConfig {
  std::string name;  // a built-in model's, or as the file says
  Family family = Family::qwen3_moe;
  std::int64_t vocab_size = 0;   // V
  std::int64_t hidden_size = 0;  // H
  std::int64_t layers = 0;       // L

  AttentionKind attention = AttentionKind::grouped_query;
  std::int64_t heads = 0;        // query heads
  std::int64_t kv_heads = 0;     // divides heads; as many with latent attention
  std::int64_t head_dim = 0;     // D of queries and keys; with latent attention qk_nope + qk_rope
  std::int64_t value_dim = 0;    // of a value head: D, or v_head_dim with latent attention
  std::int64_t q_lora_rank = 0;  // latent attention: 0 where queries are not compressed
  std::int64_t kv_lora_rank = 0;
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;
  QkNorm qk_norm = QkNorm::none;
  bool qkv_bias = false;         // on query, key and value projections; latent: on those that compress
  bool output_bias = false;      // on attention's output projection
  bool attention_sinks = false;  // a learned logit per head that takes part in the softmax, without a value
  float attention_scale = 1.0F;  // multiplies q·k
  // A windowed layer's tokens see themselves and sliding_window - 1 tokens before them; 0: no layer has one.
  std::int64_t sliding_window = 0;
  std::vector<bool> windowed;  // [L]

  MlpKind mlp = MlpKind::gated;
  std::int64_t intermediate_size = 0;      // FFN of a dense layer
  std::int64_t moe_intermediate_size = 0;  // F, FFN of an expert
  bool mlp_bias = false;                   // on all projections of an MLP, or of an expert
  float swiglu_alpha = 1.702F;             // clamped: gate * sigmoid(alpha * gate)
  float swiglu_limit = 7.0F;               // clamped: of gate and up

  std::int64_t experts = 0;            // E; 0: no sparse layers
  std::int64_t experts_per_token = 0;  // k
  std::vector<bool> sparse;            // [L] which layers have experts
  // FFN of the experts that every token passes through, together; 0: the sparse layers have none.
  std::int64_t shared_expert_intermediate_size = 0;
  bool shared_expert_gate = false;  // their output is multiplied by sigmoid(gate · x)
  bool norm_topk_prob = true;       // gate weights of a token are divided by their sum
  Scoring scoring = Scoring::softmax;
  bool router_bias = false;  // a learned bias on the router's logits
  bool expert_bias = false;  // a selection bias per expert, moved by load instead of by gradient
  float routed_scaling_factor = 1.0F;
  std::int64_t expert_groups = 1;  // a token chooses from its best top_groups of so many groups of experts
  std::int64_t top_groups = 1;
  GroupScore group_score = GroupScore::best_two;

  bool tie_word_embeddings = false;
  float rms_norm_eps = 1e-6F;
  float latent_norm_eps = 1e-6F;  // of the norms of what latent attention compresses
  float initializer_range = 0.02F;
  float router_aux_loss_coef = 0.0F;
  std::int64_t max_position_embeddings = 0;
  std::int64_t positions = 0;  // learned position embeddings (GPT)
  // Rotary embedding, after rope_theta and rope_scaling have been worked out.
  RotarySettings rotary;           // for inverse_frequencies(rotary, length): some kinds depend on the length
  bool rotary_neighbours = false;  // elements 2i and 2i + 1 turn together, instead of i and i + half
  float rotary_attention_factor = 1.0F;  // multiplies cosine and sine

  // Layers for multi-token prediction that a checkpoint may hold behind the last: planned, not trained.
  std::int64_t prediction_layers = 0;
  std::string quantization;  // of the checkpoint: "mxfp4", "fp8", …; "": none

  /// What in the file contradicts itself or has no effect; whoever reads the file tells it once.
  std::vector<std::string> notes;
  /// What of the model training does not build, in words that name the field; planning does not mind.
  std::vector<std::string> untrained;
  std::string source;  // config.json's text as it was read, for writing it back

  [[nodiscard]] std::int64_t query_size() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t kv_size() const { return kv_heads * head_dim; }
  [[nodiscard]] std::int64_t value_size() const { return kv_heads * value_dim; }
  [[nodiscard]] std::int64_t qkv_size() const { return query_size() + kv_size() + value_size(); }
  /// What attention returns for a token, before the output projection.
  [[nodiscard]] std::int64_t context_size() const { return heads * value_dim; }
  /// Latent attention: what a token is compressed to, the key's rotary part behind it.
  [[nodiscard]] std::int64_t compressed_size() const { return kv_lora_rank + qk_rope_head_dim; }

  [[nodiscard]] std::int64_t window(std::int64_t layer) const {
    return windowed[static_cast<std::size_t>(layer)] ? sliding_window : 0;
  }
  [[nodiscard]] std::int64_t windowed_layers() const;
  /// Layers behind the last, of multi-token prediction, are as the last is.
  [[nodiscard]] LayerKind kind(std::int64_t layer) const {
    return sparse[static_cast<std::size_t>(layer < layers ? layer : layers - 1)] ? LayerKind::moe
                                                                                 : LayerKind::dense;
  }
  [[nodiscard]] std::int64_t count(LayerKind kind) const;
};

/// Throws Error naming the field (and `where`, the file or section) that is missing, of a wrong type, out of
/// range, or asks for something that no room knows; never guesses.
[[nodiscard]] ModelConfig parse_model_config(const nlohmann::json& source, const std::string& where);
[[nodiscard]] ModelConfig read_model_config(const std::filesystem::path& config_json);

/// The values of model_type that are read.
[[nodiscard]] std::vector<std::string> legal_model_types();

/// Throws Error where the sizes contradict each other, or make more parameters than any model has.
void check_sizes(const ModelConfig& model, const std::string& where);

/// Throws Error saying what training does not build of the model, if anything.
void require_trainable(const ModelConfig& config, const std::string& where);

/// The class of Hugging Face's that a family's models are of, which some programs go by.
[[nodiscard]] const char* hugging_face_class(Family family);

/// A built-in model by name; null when there is none.
[[nodiscard]] const ModelConfig* find_builtin_model(std::string_view name);
[[nodiscard]] std::vector<std::string> builtin_model_names();

/// A built-in name, a config.json, or a folder that holds one. Throws Error.
[[nodiscard]] ModelConfig load_model_config(const std::string& name_or_path);

}  // namespace expedite::architecture

namespace expedite {

using architecture::ModelConfig;

}  // namespace expedite
