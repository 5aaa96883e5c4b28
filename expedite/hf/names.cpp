#include "expedite/hf/names.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>
#include <string_view>
#include <utility>

namespace expedite::hf {
namespace {

std::string in_layer(std::int64_t layer, std::string_view rest) {
  return fmt::format("model.layers.{}.{}", layer, rest);
}

std::string_view sparse_block(architecture::Family family) {
  return family == architecture::Family::mixtral ? "block_sparse_moe" : "mlp";
}

std::string expert_weight(architecture::Family family, std::int64_t layer, std::int64_t expert,
                          std::string_view matrix) {
  return fmt::format("model.layers.{}.{}.experts.{}.{}.weight", layer, sparse_block(family), expert, matrix);
}

std::string shared_weight(architecture::Family family, std::int64_t layer, std::string_view matrix) {
  const std::string_view block =
      family == architecture::Family::qwen2_moe ? "shared_expert" : "shared_experts";
  return in_layer(layer, fmt::format("mlp.{}.{}_proj.weight", block, matrix));
}

// Collects the parameters of one model in order.
class ParameterList {
 public:
  explicit ParameterList(const ModelConfig& config) : config_(config), names_(config.family) {}

  std::vector<ParameterSpec> build() && {
    const std::int64_t hidden = config_.hidden_size;
    add(ParameterNames::embedding(), {config_.vocab_size, hidden});
    for (layer_ = 0; layer_ < config_.layers; ++layer_) {
      add(ParameterNames::input_norm(layer_), {hidden});
      add_attention();
      add(ParameterNames::post_attention_norm(layer_), {hidden});
      if (config_.sparse[layer_]) {
        add_experts();
      } else {
        add_dense();
      }
    }
    layer_ = -1;
    add(ParameterNames::final_norm(), {hidden});
    if (!config_.tie_word_embeddings) {
      add(ParameterNames::head(), {config_.vocab_size, hidden});
    }
    return std::move(list_);
  }

 private:
  void add(std::string name, std::vector<std::int64_t> shape, std::int64_t expert = -1, bool trained = true) {
    list_.push_back({std::move(name), std::move(shape), layer_, expert, trained});
  }

  void add_projection(const char* projection, std::int64_t outputs, std::int64_t inputs, bool bias) {
    add(ParameterNames::attention_weight(layer_, projection), {outputs, inputs});
    if (bias) {
      add(ParameterNames::attention_bias(layer_, projection), {outputs});
    }
  }

  void add_norm(std::string name, std::int64_t size) { add(std::move(name), {size}); }

  void add_attention() {
    if (config_.attention == architecture::AttentionKind::latent) {
      return add_latent_attention();
    }
    add_projection("q", config_.query_size(), config_.hidden_size, config_.qkv_bias);
    add_projection("k", config_.kv_size(), config_.hidden_size, config_.qkv_bias);
    add_projection("v", config_.kv_size(), config_.hidden_size, config_.qkv_bias);
    add_projection("o", config_.hidden_size, config_.context_size(), config_.output_bias);
    if (config_.qk_norm != architecture::QkNorm::none) {
      const bool whole = config_.qk_norm == architecture::QkNorm::whole;
      add_norm(ParameterNames::query_norm(layer_), whole ? config_.query_size() : config_.head_dim);
      add_norm(ParameterNames::key_norm(layer_), whole ? config_.kv_size() : config_.head_dim);
    }
    if (config_.attention_sinks) {
      add(ParameterNames::sinks(layer_), {config_.heads});
    }
  }

  void add_latent_attention() {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t rank = config_.q_lora_rank;
    if (rank > 0) {
      add_projection("q_a", rank, hidden, config_.qkv_bias);
      add_norm(ParameterNames::latent_norm(layer_, "q_a"), rank);
      add_projection("q_b", config_.query_size(), rank, false);
    } else {
      add_projection("q", config_.query_size(), hidden, false);
    }
    add(ParameterNames::latent_compress_weight(layer_), {config_.compressed_size(), hidden});
    if (config_.qkv_bias) {
      add(ParameterNames::latent_compress_bias(layer_), {config_.compressed_size()});
    }
    add_norm(ParameterNames::latent_norm(layer_, "kv_a"), config_.kv_lora_rank);
    add_projection("kv_b", config_.heads * (config_.qk_nope_head_dim + config_.value_dim),
                   config_.kv_lora_rank, false);
    add_projection("o", hidden, config_.context_size(), config_.output_bias);
  }

  void add_dense() {
    add(ParameterNames::dense_gate(layer_), {config_.intermediate_size, config_.hidden_size});
    add(ParameterNames::dense_up(layer_), {config_.intermediate_size, config_.hidden_size});
    add(ParameterNames::dense_down(layer_), {config_.hidden_size, config_.intermediate_size});
    if (config_.mlp_bias) {
      add(ParameterNames::dense_bias(layer_, "gate"), {config_.intermediate_size});
      add(ParameterNames::dense_bias(layer_, "up"), {config_.intermediate_size});
      add(ParameterNames::dense_bias(layer_, "down"), {config_.hidden_size});
    }
  }

  void add_experts() {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t ffn = config_.moe_intermediate_size;
    add(names_.router(layer_), {config_.experts, hidden});
    if (config_.router_bias) {
      add(ParameterNames::router_bias(layer_), {config_.experts});
    }
    if (config_.expert_bias) {
      add(names_.selection_bias(layer_), {config_.experts}, -1, false);
    }
    if (names_.fused_experts()) {
      add(ParameterNames::fused_experts_gate_up(layer_), {config_.experts, hidden, 2 * ffn});
      list_.back().fused = true;
      add(ParameterNames::fused_experts_gate_up_bias(layer_), {config_.experts, 2 * ffn});
      list_.back().fused = true;
      add(ParameterNames::fused_experts_down(layer_), {config_.experts, ffn, hidden});
      list_.back().fused = true;
      add(ParameterNames::fused_experts_down_bias(layer_), {config_.experts, hidden});
      list_.back().fused = true;
      return;
    }
    for (std::int64_t expert = 0; expert < config_.experts; ++expert) {
      add(names_.expert_gate(layer_, expert), {ffn, hidden}, expert);
      add(names_.expert_up(layer_, expert), {ffn, hidden}, expert);
      add(names_.expert_down(layer_, expert), {hidden, ffn}, expert);
    }
    if (config_.shared_expert_intermediate_size > 0) {
      add_shared_expert();
    }
  }

  void add_shared_expert() {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t ffn = config_.shared_expert_intermediate_size;
    add(names_.shared_gate(layer_), {ffn, hidden});
    add(names_.shared_up(layer_), {ffn, hidden});
    add(names_.shared_down(layer_), {hidden, ffn});
    if (config_.shared_expert_gate) {
      add(ParameterNames::shared_expert_gate(layer_), {1, hidden});
    }
  }

  const ModelConfig& config_;
  ParameterNames names_;
  std::int64_t layer_ = -1;
  std::vector<ParameterSpec> list_;
};

}  // namespace

std::string ParameterNames::embedding() {
  return "model.embed_tokens.weight";
}
std::string ParameterNames::final_norm() {
  return "model.norm.weight";
}
std::string ParameterNames::head() {
  return "lm_head.weight";
}

std::string ParameterNames::input_norm(std::int64_t layer) {
  return in_layer(layer, "input_layernorm.weight");
}
std::string ParameterNames::post_attention_norm(std::int64_t layer) {
  return in_layer(layer, "post_attention_layernorm.weight");
}
std::string ParameterNames::attention_weight(std::int64_t layer, const char* projection) {
  return in_layer(layer, fmt::format("self_attn.{}_proj.weight", projection));
}
std::string ParameterNames::attention_bias(std::int64_t layer, const char* projection) {
  return in_layer(layer, fmt::format("self_attn.{}_proj.bias", projection));
}
std::string ParameterNames::query_norm(std::int64_t layer) {
  return in_layer(layer, "self_attn.q_norm.weight");
}
std::string ParameterNames::key_norm(std::int64_t layer) {
  return in_layer(layer, "self_attn.k_norm.weight");
}

std::string ParameterNames::sinks(std::int64_t layer) {
  return in_layer(layer, "self_attn.sinks");
}
std::string ParameterNames::latent_norm(std::int64_t layer, const char* projection) {
  return in_layer(layer, fmt::format("self_attn.{}_layernorm.weight", projection));
}
std::string ParameterNames::latent_compress_weight(std::int64_t layer) {
  return in_layer(layer, "self_attn.kv_a_proj_with_mqa.weight");
}
std::string ParameterNames::latent_compress_bias(std::int64_t layer) {
  return in_layer(layer, "self_attn.kv_a_proj_with_mqa.bias");
}

std::string ParameterNames::dense_gate(std::int64_t layer) {
  return in_layer(layer, "mlp.gate_proj.weight");
}
std::string ParameterNames::dense_up(std::int64_t layer) {
  return in_layer(layer, "mlp.up_proj.weight");
}
std::string ParameterNames::dense_down(std::int64_t layer) {
  return in_layer(layer, "mlp.down_proj.weight");
}

std::string ParameterNames::dense_bias(std::int64_t layer, const char* projection) {
  return in_layer(layer, fmt::format("mlp.{}_proj.bias", projection));
}

std::string ParameterNames::router(std::int64_t layer) const {
  const char* const name = fused_experts() ? "router" : "gate";
  return in_layer(layer, fmt::format("{}.{}.weight", sparse_block(family_), name));
}
std::string ParameterNames::router_bias(std::int64_t layer) {
  return in_layer(layer, "mlp.router.bias");
}
std::string ParameterNames::selection_bias(std::int64_t layer) const {
  return in_layer(layer, fmt::format("{}.gate.e_score_correction_bias", sparse_block(family_)));
}
std::string ParameterNames::expert_gate(std::int64_t layer, std::int64_t expert) const {
  return expert_weight(family_, layer, expert, family_ == architecture::Family::mixtral ? "w1" : "gate_proj");
}
std::string ParameterNames::expert_up(std::int64_t layer, std::int64_t expert) const {
  return expert_weight(family_, layer, expert, family_ == architecture::Family::mixtral ? "w3" : "up_proj");
}
std::string ParameterNames::expert_down(std::int64_t layer, std::int64_t expert) const {
  return expert_weight(family_, layer, expert, family_ == architecture::Family::mixtral ? "w2" : "down_proj");
}

std::string ParameterNames::fused_experts_gate_up(std::int64_t layer) {
  return in_layer(layer, "mlp.experts.gate_up_proj");
}
std::string ParameterNames::fused_experts_gate_up_bias(std::int64_t layer) {
  return in_layer(layer, "mlp.experts.gate_up_proj_bias");
}
std::string ParameterNames::fused_experts_down(std::int64_t layer) {
  return in_layer(layer, "mlp.experts.down_proj");
}
std::string ParameterNames::fused_experts_down_bias(std::int64_t layer) {
  return in_layer(layer, "mlp.experts.down_proj_bias");
}

std::string ParameterNames::shared_gate(std::int64_t layer) const {
  return shared_weight(family_, layer, "gate");
}
std::string ParameterNames::shared_up(std::int64_t layer) const {
  return shared_weight(family_, layer, "up");
}
std::string ParameterNames::shared_down(std::int64_t layer) const {
  return shared_weight(family_, layer, "down");
}
std::string ParameterNames::shared_expert_gate(std::int64_t layer) {
  return in_layer(layer, "mlp.shared_expert_gate.weight");
}

std::int64_t ParameterSpec::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<ParameterSpec> parameters(const ModelConfig& config) {
  return ParameterList(config).build();
}

}  // namespace expedite::hf
