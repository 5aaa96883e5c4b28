// The parameters of a model under their Hugging Face names, so that checkpoints go in and out unchanged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "expedite/model/config.h"

namespace expedite::model {

/// The name of each parameter of a family. Layers and experts count from 0 over the whole model.
class ParameterNames {
 public:
  explicit ParameterNames(Family family) : family_(family) {}

  [[nodiscard]] static std::string embedding();   // [V, H]
  [[nodiscard]] static std::string final_norm();  // [H]
  [[nodiscard]] static std::string head();  // [V, H]; no parameter of its own when tied to the embedding

  [[nodiscard]] static std::string input_norm(std::int64_t layer);           // [H]
  [[nodiscard]] static std::string post_attention_norm(std::int64_t layer);  // [H]
  /// Attention: `projection` is "q", "k", "v" or "o". Weights are [outputs, inputs], biases [outputs].
  [[nodiscard]] static std::string attention_weight(std::int64_t layer, const char* projection);
  [[nodiscard]] static std::string attention_bias(std::int64_t layer, const char* projection);
  [[nodiscard]] static std::string query_norm(std::int64_t layer);  // [D]
  [[nodiscard]] static std::string key_norm(std::int64_t layer);    // [D]

  [[nodiscard]] static std::string dense_gate(std::int64_t layer);  // [FFN, H]
  [[nodiscard]] static std::string dense_up(std::int64_t layer);    // [FFN, H]
  [[nodiscard]] static std::string dense_down(std::int64_t layer);  // [H, FFN]

  [[nodiscard]] std::string router(std::int64_t layer) const;  // [E, H]
  /// [E]; DeepSeek-V3's name, which is also that of families that have none of their own.
  [[nodiscard]] std::string selection_bias(std::int64_t layer) const;
  [[nodiscard]] std::string expert_gate(std::int64_t layer, std::int64_t expert) const;  // [F, H]
  [[nodiscard]] std::string expert_up(std::int64_t layer, std::int64_t expert) const;    // [F, H]
  [[nodiscard]] std::string expert_down(std::int64_t layer, std::int64_t expert) const;  // [H, F]

  // Those that all tokens share; Fs is shared_expert_intermediate_size.
  [[nodiscard]] std::string shared_gate(std::int64_t layer) const;          // [Fs, H]
  [[nodiscard]] std::string shared_up(std::int64_t layer) const;            // [Fs, H]
  [[nodiscard]] std::string shared_down(std::int64_t layer) const;          // [H, Fs]
  [[nodiscard]] static std::string shared_expert_gate(std::int64_t layer);  // [1, H]

 private:
  Family family_;
};

struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t layer = -1;   // -1: not in a layer
  std::int64_t expert = -1;  // -1: not of an expert
  bool trained = true;       // false: moved by load, not by gradient (the selection bias)

  [[nodiscard]] std::int64_t elements() const;
};

/// Every parameter in canonical order: embedding, the layers from first to last (attention before FFN,
/// router, experts by number, shared expert; each gate, up, down), final norm, head.
[[nodiscard]] std::vector<ParameterSpec> parameters(const ModelConfig& config);

}  // namespace expedite::model
