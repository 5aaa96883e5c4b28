#include "expedite/train/model_source.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "expedite/base/error.h"
#include "expedite/base/text.h"
#include "expedite/train/key_meanings.h"

namespace expedite::train {
namespace {

/// The config.json that `model.path` names, directly or as its folder.
std::filesystem::path config_file(const std::string& path) {
  const std::filesystem::path given(path);
  return std::filesystem::is_directory(given) ? given / "config.json" : given;
}

/// Megatron's num_layers would leave num_hidden_layers as it is, unless both say the same.
void refuse_other_name(const nlohmann::json& fields, const std::string& field) {
  constexpr std::string_view kPrefix = "model.config.";
  for (const std::string& meant : keys_meant_by(field)) {
    const std::string ours = meant.starts_with(kPrefix) ? meant.substr(kPrefix.size()) : field;
    require(ours == field || (fields.contains(ours) && fields[ours] == fields[field]),
            "unknown key model.config.{}; what others call {} is {} here", field, field, meant);
  }
}

/// A config.json may hold fields that say nothing about the architecture. But one that is nearly the name of
/// one that does is a slip, which would leave that one at its default.
void refuse_misspelt_fields(const nlohmann::json& fields) {
  constexpr std::int64_t kSlip = 2;  // edits
  static const std::vector<std::string> kNames = {"attention_bias",
                                                  "attention_dropout",
                                                  "decoder_sparse_step",
                                                  "first_k_dense_replace",
                                                  "head_dim",
                                                  "hidden_act",
                                                  "hidden_size",
                                                  "initializer_range",
                                                  "intermediate_size",
                                                  "layer_types",
                                                  "max_position_embeddings",
                                                  "max_window_layers",
                                                  "mlp_only_layers",
                                                  "model_type",
                                                  "moe_intermediate_size",
                                                  "moe_layer_freq",
                                                  "moe_router_enable_expert_bias",
                                                  "n_group",
                                                  "n_routed_experts",
                                                  "n_shared_experts",
                                                  "norm_topk_prob",
                                                  "num_attention_heads",
                                                  "num_experts",
                                                  "num_experts_per_tok",
                                                  "num_hidden_layers",
                                                  "num_key_value_heads",
                                                  "num_local_experts",
                                                  "num_nextn_predict_layers",
                                                  "partial_rotary_factor",
                                                  "qkv_bias",
                                                  "rms_norm_eps",
                                                  "rope_parameters",
                                                  "rope_scaling",
                                                  "rope_theta",
                                                  "routed_scaling_factor",
                                                  "router_aux_loss_coef",
                                                  "router_jitter_noise",
                                                  "scoring_func",
                                                  "shared_expert_intermediate_size",
                                                  "sliding_window",
                                                  "tie_word_embeddings",
                                                  "topk_group",
                                                  "topk_method",
                                                  "use_qk_norm",
                                                  "use_sliding_window",
                                                  "vocab_size"};
  for (const auto& [field, value] : fields.items()) {
    const std::string nearest = nearest_name(field, kNames);
    if (field != nearest) {
      refuse_other_name(fields, field);
    }
    require(field == nearest || edit_distance(field, nearest) > kSlip,
            "unknown key model.config.{}; the nearest known key is model.config.{}", field, nearest);
  }
}

/// How long a sequence may be, scaled rotary positions included.
std::int64_t positions_of(const model::ModelConfig& model) {
  const model::RotarySettings& rotary = model.rotary;
  double scaled = 0.0;
  switch (rotary.scaling) {
    case model::RotaryScaling::none:
    case model::RotaryScaling::llama3:  // counted in max_position_embeddings
      break;
    case model::RotaryScaling::linear:
    case model::RotaryScaling::dynamic:
      scaled = rotary.factor * static_cast<double>(model.max_position_embeddings);
      break;
    case model::RotaryScaling::yarn:
      scaled = rotary.factor * rotary.original_positions;
      break;
  }
  return std::max(model.max_position_embeddings, static_cast<std::int64_t>(scaled));
}

}  // namespace

model::ModelConfig model_of(const TrainConfig& config, std::int64_t tokenizer_vocab) {
  const bool from_file = !config.model.path.empty();
  const std::string where = from_file ? config_file(config.model.path).string() : "model.config";
  nlohmann::json source = from_file ? model::read_model_config(where).source : config.model.config;
  if (!from_file) {
    refuse_misspelt_fields(source);
  }
  if (!source.contains("vocab_size")) {
    source["vocab_size"] = tokenizer_vocab;
  }
  if (config.moe.router_load_balancing_type == LoadBalancing::bias) {
    source["moe_router_enable_expert_bias"] = true;
  }
  model::ModelConfig result = model::parse_model_config(source, where);
  require(result.vocab_size >= tokenizer_vocab,
          "{}: vocab_size is {}, but data.tokenizer = '{}' has {} tokens: raise vocab_size or choose the "
          "model's own "
          "tokenizer",
          where, result.vocab_size, config.data.tokenizer, tokenizer_vocab);
  const std::int64_t positions = positions_of(result);
  require(config.data.seq_length <= positions,
          "data.seq_length = {}, but the model has {} positions (max_position_embeddings of {}): --set "
          "data.seq_length={} or less",
          config.data.seq_length, positions, where, positions);
  return result;
}

}  // namespace expedite::train
