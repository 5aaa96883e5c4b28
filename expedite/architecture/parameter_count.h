// How many parameters a model has, without listing them: for planning, where a model may have 10^12.
#pragma once

#include <cstdint>

#include "expedite/architecture/model_config.h"

namespace expedite::architecture {

/// Parameters of one of each, with norms and biases. Exact. The two norms of a layer are not attention's.
[[nodiscard]] std::int64_t attention_parameters(const ModelConfig& model);
[[nodiscard]] std::int64_t mlp_parameters(const ModelConfig& model, std::int64_t ffn);
[[nodiscard]] std::int64_t layer_parameters(const ModelConfig& model, LayerKind kind);
[[nodiscard]] std::int64_t embedding_parameters(const ModelConfig& model);
/// Of the model, and of what a token passes through. `with_prediction` adds multi-token prediction layers,
/// which share embedding and head.
[[nodiscard]] std::int64_t total_parameters(const ModelConfig& model, bool with_prediction = false);
[[nodiscard]] std::int64_t active_parameters(const ModelConfig& model, bool with_prediction = false);

}  // namespace expedite::architecture
