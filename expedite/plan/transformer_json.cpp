// Reading a Hugging Face config.json: which fields each model type has, and what they mean.
#include <algorithm>
#include <array>
#include <string>

#include "expedite/base/config_fields.h"
#include "expedite/base/error.h"
#include "expedite/base/hugging_face_fields.h"
#include "expedite/base/rotary_settings.h"
#include "expedite/base/text.h"
#include "expedite/plan/transformer.h"

namespace expedite::plan {
namespace {

constexpr std::int64_t kMostLayers = 4096;

void read_sizes(const ConfigFields& fields, Transformer& model) {
  model.vocab = fields.required_integer("vocab_size");
  model.hidden = fields.required_integer("hidden_size");
  model.heads = fields.required_integer("num_attention_heads");
  model.kv_heads = fields.integer("num_key_value_heads", model.heads);
  model.layers.assign(fields.required_integer("num_hidden_layers", 1, kMostLayers), LayerKind::dense);
  model.tied_embeddings = fields.boolean("tie_word_embeddings", false);
}

void read_head_dim(const ConfigFields& fields, Transformer& model) {
  const std::optional<std::int64_t> head_dim = fields.optional_integer("head_dim");
  require(head_dim.has_value() || model.hidden % model.heads == 0,
          "{}: hidden_size {} does not divide into num_attention_heads {}, and the field head_dim is missing",
          fields.where(), model.hidden, model.heads);
  model.head_dim = head_dim.value_or(model.hidden / model.heads);
}

void read_window(const ConfigFields& fields, Transformer& model) {
  model.window = fields.integer("sliding_window", 0);
  model.windowed_layers = model.window > 0 ? model.layer_count() : 0;
}

/// Layers that layer_types marks as windowed; without the field `otherwise`.
std::int64_t windowed_layers(const ConfigFields& fields, std::int64_t layers, std::int64_t otherwise) {
  const nlohmann::json* types = fields.find("layer_types");
  if (types == nullptr) {
    return otherwise;
  }
  require(types->is_array() && std::ssize(*types) == layers,
          "{}: layer_types must list all {} layers, each \"sliding_attention\" or \"full_attention\"",
          fields.where(), layers);
  return std::ranges::count(*types, nlohmann::json("sliding_attention"));
}

void read_llama(const ConfigFields& fields, Transformer& model) {
  read_head_dim(fields, model);
  model.ffn = fields.required_integer("intermediate_size");
  model.attention_bias = model.output_bias = fields.boolean("attention_bias", false);
  model.mlp_bias = fields.boolean("mlp_bias", false);
}

void read_mistral(const ConfigFields& fields, Transformer& model) {
  read_head_dim(fields, model);
  model.ffn = fields.required_integer("intermediate_size");
  read_window(fields, model);
}

void read_mixtral(const ConfigFields& fields, Transformer& model) {
  read_mistral(fields, model);
  model.moe_ffn = model.ffn;
  model.experts = fields.required_integer("num_local_experts");
  model.topk = fields.required_integer("num_experts_per_tok");
  model.layers.assign(model.layers.size(), LayerKind::moe);
}

void read_qwen(const ConfigFields& fields, bool biases, Transformer& model) {
  read_head_dim(fields, model);
  model.ffn = fields.required_integer("intermediate_size");
  model.attention_bias = fields.boolean("attention_bias", biases);
  if (fields.boolean("use_sliding_window", false)) {
    model.window = fields.required_integer("sliding_window");
    const std::int64_t first = fields.integer("max_window_layers", model.layer_count(), 0);
    model.windowed_layers =
        windowed_layers(fields, model.layer_count(), std::max<std::int64_t>(0, model.layer_count() - first));
  }
}

/// Layer i has experts when i + 1 is a multiple of decoder_sparse_step and mlp_only_layers does not list it.
void read_qwen_moe(const ConfigFields& fields, bool biases, Transformer& model) {
  read_qwen(fields, biases, model);
  model.experts = fields.required_integer("num_experts");
  model.topk = fields.required_integer("num_experts_per_tok");
  model.moe_ffn = fields.required_integer("moe_intermediate_size");
  model.shared_ffn = fields.integer("shared_expert_intermediate_size", 0, 0);
  const std::int64_t step = fields.integer("decoder_sparse_step", 1);
  for (std::int64_t layer = 0; layer < model.layer_count(); ++layer) {
    model.layers[layer] = (layer + 1) % step == 0 ? LayerKind::moe : LayerKind::dense;
  }
  if (const nlohmann::json* dense = fields.find("mlp_only_layers")) {
    require(dense->is_array(), "{}: mlp_only_layers must be a list of layer numbers, not {}", fields.where(),
            excerpt(*dense));
    for (const nlohmann::json& layer : *dense) {
      const bool whole =
          layer.is_number_unsigned() || (layer.is_number_integer() && layer.get<std::int64_t>() >= 0);
      require(whole && layer.get<std::uint64_t>() < model.layers.size(),
              "{}: mlp_only_layers must list layers from 0 to {}, not {}", fields.where(),
              model.layer_count() - 1, excerpt(layer));
      model.layers[layer.get<std::size_t>()] = LayerKind::dense;
    }
  }
}

void read_deepseek(const ConfigFields& fields, Transformer& model) {
  model.attention = AttentionKind::latent;
  model.kv_heads = model.heads;
  model.q_lora_rank = fields.integer("q_lora_rank", 0);
  model.kv_lora_rank = fields.required_integer("kv_lora_rank");
  model.qk_nope_head_dim = fields.required_integer("qk_nope_head_dim");
  model.qk_rope_head_dim = fields.required_integer("qk_rope_head_dim");
  model.v_head_dim = fields.required_integer("v_head_dim");
  model.ffn = fields.required_integer("intermediate_size");
  model.mtp_layers = fields.integer("num_nextn_predict_layers", 0, 0, 16);
  model.experts = fields.integer("n_routed_experts", 0, 0);
  if (model.experts == 0) {
    return;
  }
  model.topk = fields.required_integer("num_experts_per_tok");
  model.moe_ffn = fields.required_integer("moe_intermediate_size");
  model.shared_ffn = fields.integer("n_shared_experts", 0, 0, 1 << 16) * model.moe_ffn;
  model.router_bias = fields.text("topk_method", "") == "noaux_tc";
  const std::int64_t first = fields.integer("first_k_dense_replace", 0, 0);
  const std::int64_t step = fields.integer("moe_layer_freq", 1);
  for (std::int64_t layer = first; layer < model.layer_count(); ++layer) {
    model.layers[layer] = layer % step == 0 ? LayerKind::moe : LayerKind::dense;
  }
}

void read_gpt_oss(const ConfigFields& fields, Transformer& model) {
  read_head_dim(fields, model);
  model.moe_ffn = fields.required_integer("intermediate_size");
  model.experts = fields.required_integer("num_local_experts");
  model.topk = fields.required_integer("num_experts_per_tok");
  model.layers.assign(model.layers.size(), LayerKind::moe);
  model.attention_bias = model.output_bias = fields.boolean("attention_bias", true);
  model.mlp_bias = model.router_bias = true;
  model.window = fields.integer("sliding_window", 0);
  // Every other layer, beginning with the first.
  model.windowed_layers =
      model.window > 0 ? windowed_layers(fields, model.layer_count(), (model.layer_count() + 1) / 2) : 0;
}

Transformer read_gpt2(const ConfigFields& fields) {
  Transformer model;
  model.vocab = fields.required_integer("vocab_size");
  model.hidden = fields.required_integer("n_embd");
  model.heads = model.kv_heads = fields.required_integer("n_head");
  model.layers.assign(fields.required_integer("n_layer", 1, kMostLayers), LayerKind::dense);
  require(model.hidden % model.heads == 0, "{}: n_embd {} must be a multiple of n_head {}", fields.where(),
          model.hidden, model.heads);
  model.head_dim = model.hidden / model.heads;
  model.ffn = fields.integer("n_inner", 4 * model.hidden);
  model.positions = fields.required_integer("n_positions");
  model.mlp = MlpKind::plain;
  model.tied_embeddings = fields.boolean("tie_word_embeddings", true);
  model.attention_bias = model.output_bias = model.mlp_bias = true;
  return model;
}

/// A plan does not depend on how rotary embedding is scaled, but training does: what is wrong is told here
/// too. Kinds that only other programs read are left to them.
void check_rotary(const ConfigFields& fields, Transformer& model) {
  constexpr std::int64_t kPositions = 2048;
  constexpr double kTheta = 10000.0;
  if (!reads_rotary_scaling(fields)) {
    return;
  }
  const std::int64_t turned =
      model.attention == AttentionKind::latent ? model.qk_rope_head_dim : model.head_dim;
  const std::int64_t positions = fields.integer("max_position_embeddings", kPositions);
  model.notes = parse_rotary_settings(fields, turned, positions, kTheta).notes;
}

struct Type {
  const char* name;
  void (*read)(const ConfigFields&, Transformer&);
};

constexpr std::array kTypes = {
    Type{"llama", read_llama},
    Type{"mistral", read_mistral},
    Type{"mixtral", read_mixtral},
    Type{"qwen2", [](const ConfigFields& fields, Transformer& model) { read_qwen(fields, true, model); }},
    Type{"qwen3", [](const ConfigFields& fields, Transformer& model) { read_qwen(fields, false, model); }},
    Type{"qwen2_moe",
         [](const ConfigFields& fields, Transformer& model) { read_qwen_moe(fields, true, model); }},
    Type{"qwen3_moe",
         [](const ConfigFields& fields, Transformer& model) { read_qwen_moe(fields, false, model); }},
    Type{"deepseek_v2", read_deepseek},
    Type{"deepseek_v3", read_deepseek},
    Type{"kimi_k2", read_deepseek},
    Type{"gpt_oss", read_gpt_oss},
};

}  // namespace

std::vector<std::string> legal_model_types() {
  std::vector<std::string> names;
  names.reserve(std::size(kTypes) + 1);
  for (const Type& type : kTypes) {
    names.emplace_back(type.name);
  }
  names.emplace_back("gpt2");
  return names;
}

Transformer parse_transformer(const nlohmann::json& source, const std::string& where) {
  const ConfigFields fields(source, where);
  const std::string name = fields.text("model_type", "");
  const std::vector<std::string> legal = legal_model_types();
  require(!name.empty(), "{}: the field model_type is missing; legal are {}", where, join_choices(legal));
  Transformer model;
  if (name == "gpt2") {
    model = read_gpt2(fields);
  } else {
    const auto type = std::ranges::find_if(kTypes, [&](const Type& entry) { return name == entry.name; });
    require(type != kTypes.end(), "{}: model_type \"{}\" cannot be planned for; legal are {}", where, name,
            join_choices(legal));
    read_sizes(fields, model);
    type->read(fields, model);
    check_rotary(fields, model);
  }
  model.name = fields.text("_name_or_path", "");
  if (model.name.empty()) {
    model.name = name;
  }
  check(model, where);
  fields.refuse_slips(hugging_face_fields(), model.notes);
  return model;
}

}  // namespace expedite::plan
