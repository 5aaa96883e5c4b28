// A transformer as planning sees it: the sizes that decide what it computes, sends and stores.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace expedite::plan {

enum class AttentionKind : std::uint8_t {
  grouped_query,
  latent,  // multi-head latent attention (DeepSeek-AI, 2024, arXiv:2405.04434)
};

enum class MlpKind : std::uint8_t {
  plain,  // H -> F -> H with an activation between (GPT)
  gated,  // two projections H -> F, one through the activation, their product -> H (SwiGLU)
};

enum class LayerKind : std::uint8_t { dense, moe };

/// V vocabulary, H hidden, F FFN, E routed experts, k experts per token, D head size.
struct Transformer {
  std::string name;
  std::int64_t vocab = 0;     // V
  std::int64_t hidden = 0;    // H
  std::int64_t heads = 0;     // query heads
  std::int64_t kv_heads = 0;  // divides heads; as many as heads with latent attention
  std::int64_t head_dim = 0;  // D of grouped-query attention
  AttentionKind attention = AttentionKind::grouped_query;
  std::int64_t q_lora_rank = 0;  // latent attention: 0 if queries are not compressed
  std::int64_t kv_lora_rank = 0;
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t v_head_dim = 0;
  MlpKind mlp = MlpKind::gated;
  std::int64_t ffn = 0;         // F of a dense layer
  std::int64_t moe_ffn = 0;     // F of a routed expert
  std::int64_t experts = 0;     // E; 0: no MoE layers
  std::int64_t topk = 0;        // k
  std::int64_t shared_ffn = 0;  // F of the experts that every token passes through, together
  std::vector<LayerKind> layers;
  std::int64_t mtp_layers = 0;       // for multi-token prediction, each a layer of the last one's kind
  std::int64_t window = 0;           // tokens that a windowed layer sees; 0: none has a window
  std::int64_t windowed_layers = 0;  // of the layers
  std::int64_t positions = 0;        // learned position embeddings
  bool tied_embeddings = false;
  bool attention_bias = false;  // on query, key and value projections
  bool output_bias = false;     // on attention's output projection
  bool mlp_bias = false;        // on all projections of an MLP or expert
  bool router_bias = false;     // per expert
  /// What in its file contradicts itself or has no effect; whoever reads the file tells it once.
  std::vector<std::string> notes;

  [[nodiscard]] std::int64_t layer_count() const { return static_cast<std::int64_t>(layers.size()); }
  [[nodiscard]] std::int64_t count(LayerKind kind) const;
  /// Query and key elements per head, and value elements.
  [[nodiscard]] std::int64_t qk_dim() const;
  [[nodiscard]] std::int64_t v_dim() const;

  bool operator==(const Transformer&) const = default;
};

/// Parameters of one of each, with norms and biases. Exact.
[[nodiscard]] std::int64_t attention_parameters(const Transformer& model);
[[nodiscard]] std::int64_t mlp_parameters(const Transformer& model, std::int64_t ffn);
[[nodiscard]] std::int64_t layer_parameters(const Transformer& model, LayerKind kind);
[[nodiscard]] std::int64_t embedding_parameters(const Transformer& model);
/// Of the model, and of what a token passes through. `with_prediction` adds multi-token prediction layers,
/// which share embedding and head.
[[nodiscard]] std::int64_t total_parameters(const Transformer& model, bool with_prediction = false);
[[nodiscard]] std::int64_t active_parameters(const Transformer& model, bool with_prediction = false);

/// Throws Error saying which size cannot be and what would be legal; `where` names the file or option.
void check(const Transformer& model, const std::string& where);

/// From a Hugging Face config.json of the types legal_model_types(). Throws Error naming `where`, the field,
/// and what would be legal.
[[nodiscard]] Transformer parse_transformer(const nlohmann::json& source, const std::string& where);
[[nodiscard]] std::vector<std::string> legal_model_types();

/// A built-in model by name; null when there is none.
[[nodiscard]] const Transformer* find_builtin_model(std::string_view name);
[[nodiscard]] std::vector<std::string> builtin_model_names();

/// A built-in name, a config.json, or a folder that holds one. Throws Error.
[[nodiscard]] Transformer load_transformer(const std::string& name_or_path);

}  // namespace expedite::plan
