// Readers of the families without experts.
#include "expedite/architecture/family_reader.h"
#include "expedite/base/error.h"

namespace expedite::architecture {
namespace {

/// With use_sliding_window, layers from max_window_layers on have the window, unless layer_types says which.
void read_qwen_window(const ConfigFields& fields, ModelConfig& config) {
  constexpr std::int64_t kWindow = 4096;
  constexpr std::int64_t kFirst = 28;
  const std::int64_t first = fields.integer("max_window_layers", kFirst, 0);
  if (fields.boolean("use_sliding_window", false)) {
    config.sliding_window = read_window(fields, kWindow);
  }
  read_layer_types(fields, layers_from(first, config.layers), config);
}

}  // namespace

void read_llama(const ConfigFields& fields, ModelConfig& config) {
  read_sizes(fields, kLlama, config);
  read_heads(fields, kLlama, config);
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
  config.mlp_bias = fields.boolean("mlp_bias", false);
  read_rotary(fields, config.head_dim, 1.0, kLlama, config);
}

void read_mistral(const ConfigFields& fields, ModelConfig& config) {
  constexpr std::int64_t kWindow = 4096;
  read_sizes(fields, kMistral, config);
  read_heads(fields, kMistral, config);
  config.sliding_window = read_window(fields, kWindow);
  window_everywhere(fields, config);
  read_rotary(fields, config.head_dim, 1.0, kMistral, config);
}

void read_qwen2(const ConfigFields& fields, ModelConfig& config) {
  read_sizes(fields, kQwen2, config);
  read_heads(fields, kQwen2, config);
  config.qkv_bias = true;
  read_qwen_window(fields, config);
  read_rotary(fields, config.head_dim, 1.0, kQwen2, config);
}

void read_qwen3(const ConfigFields& fields, ModelConfig& config) {
  read_sizes(fields, kQwen3, config);
  read_heads(fields, kQwen3, config);
  config.qk_norm = QkNorm::head;
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
  read_qwen_window(fields, config);
  read_rotary(fields, config.head_dim, 1.0, kQwen3, config);
}

void read_gpt2(const ConfigFields& fields, ModelConfig& config) {
  config.vocab_size = fields.required_integer("vocab_size");
  config.hidden_size = fields.required_integer("n_embd");
  config.heads = config.kv_heads = fields.required_integer("n_head");
  config.layers = fields.required_integer("n_layer", 1, kMaxLayers);
  config.sparse.assign(static_cast<std::size_t>(config.layers), false);
  config.windowed = config.sparse;
  require(config.hidden_size % config.heads == 0, "{}: n_embd {} must be a multiple of n_head {}",
          fields.where(), config.hidden_size, config.heads);
  config.head_dim = config.value_dim = config.hidden_size / config.heads;
  config.intermediate_size = fields.integer("n_inner", 4 * config.hidden_size);
  config.positions = fields.required_integer("n_positions");
  config.max_position_embeddings = config.positions;
  config.mlp = MlpKind::plain;
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.untrained.emplace_back("gpt2 has learned positions, LayerNorm and MLPs without a gate");
}

}  // namespace expedite::architecture
