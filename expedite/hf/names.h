// The parameters of a model under their Hugging Face names, so that checkpoints go in and out unchanged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "expedite/architecture/model_config.h"

namespace expedite::hf {

/// The name of each parameter of a family. Layers and experts count from 0 over the whole model.
class ParameterNames {
 public:
  explicit ParameterNames(architecture::Family family) : family_(family) {}

  [[nodiscard]] static std::string embedding();   // [V, H]
  [[nodiscard]] static std::string final_norm();  // [H]
  [[nodiscard]] static std::string head();  // [V, H]; no parameter of its own when tied to the embedding

  [[nodiscard]] static std::string input_norm(std::int64_t layer);           // [H]
  [[nodiscard]] static std::string post_attention_norm(std::int64_t layer);  // [H]
  /// Attention: `projection` is "q", "k", "v" or "o". Weights are [outputs, inputs], biases [outputs].
  [[nodiscard]] static std::string attention_weight(std::int64_t layer, const char* projection);
  [[nodiscard]] static std::string attention_bias(std::int64_t layer, const char* projection);
  [[nodiscard]] static std::string query_norm(std::int64_t layer);  // [D]; olmoe: [heads D]
  [[nodiscard]] static std::string key_norm(std::int64_t layer);    // [D]; olmoe: [kv_heads D]
  [[nodiscard]] static std::string sinks(std::int64_t layer);       // [heads]
  /// Latent attention: besides attention_weight's "q_a", "q_b" and "kv_b". `projection` is "q_a" or "kv_a".
  [[nodiscard]] static std::string latent_norm(std::int64_t layer, const char* projection);
  [[nodiscard]] static std::string latent_compress_weight(std::int64_t layer);  // [Rkv + Dr, H]
  [[nodiscard]] static std::string latent_compress_bias(std::int64_t layer);    // [Rkv + Dr]

  [[nodiscard]] static std::string dense_gate(std::int64_t layer);  // [FFN, H]
  [[nodiscard]] static std::string dense_up(std::int64_t layer);    // [FFN, H]
  [[nodiscard]] static std::string dense_down(std::int64_t layer);  // [H, FFN]
  /// `projection` is "gate", "up" or "down".
  [[nodiscard]] static std::string dense_bias(std::int64_t layer, const char* projection);

  [[nodiscard]] std::string router(std::int64_t layer) const;        // [E, H]
  [[nodiscard]] static std::string router_bias(std::int64_t layer);  // [E]
  /// [E]; DeepSeek-V3's name, which is also that of families that have none of their own.
  [[nodiscard]] std::string selection_bias(std::int64_t layer) const;
  [[nodiscard]] std::string expert_gate(std::int64_t layer, std::int64_t expert) const;  // [F, H]
  [[nodiscard]] std::string expert_up(std::int64_t layer, std::int64_t expert) const;    // [F, H]
  [[nodiscard]] std::string expert_down(std::int64_t layer, std::int64_t expert) const;  // [H, F]

  /// All experts of a layer are in one tensor, each matrix transposed, gate and up by turns (gpt_oss).
  [[nodiscard]] bool fused_experts() const { return family_ == architecture::Family::gpt_oss; }
  [[nodiscard]] static std::string fused_experts_gate_up(std::int64_t layer);       // [E, H, 2 F]
  [[nodiscard]] static std::string fused_experts_gate_up_bias(std::int64_t layer);  // [E, 2 F]
  [[nodiscard]] static std::string fused_experts_down(std::int64_t layer);          // [E, F, H]
  [[nodiscard]] static std::string fused_experts_down_bias(std::int64_t layer);     // [E, H]

  // Those that all tokens share; Fs is shared_expert_intermediate_size.
  [[nodiscard]] std::string shared_gate(std::int64_t layer) const;          // [Fs, H]
  [[nodiscard]] std::string shared_up(std::int64_t layer) const;            // [Fs, H]
  [[nodiscard]] std::string shared_down(std::int64_t layer) const;          // [H, Fs]
  [[nodiscard]] static std::string shared_expert_gate(std::int64_t layer);  // [1, H]

 private:
  architecture::Family family_;
};

struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t layer = -1;   // -1: not in a layer
  std::int64_t expert = -1;  // -1: not of an expert
  bool trained = true;       // false: moved by load, not by gradient (the selection bias)
  bool fused = false;        // of all experts of the layer

  [[nodiscard]] std::int64_t elements() const;
};

/// Every parameter in canonical order: embedding, the layers from first to last (attention before FFN,
/// router, experts by number, shared expert; each gate, up, down), final norm, head.
[[nodiscard]] std::vector<ParameterSpec> parameters(const ModelConfig& config);

}  // namespace expedite::hf
