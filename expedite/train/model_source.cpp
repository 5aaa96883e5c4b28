#include "expedite/train/model_source.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "expedite/architecture/hugging_face_fields.h"
#include "expedite/base/error.h"
#include "expedite/base/near_fields.h"
#include "expedite/base/strict_json.h"
#include "expedite/train/key_meanings.h"
#include "expedite/train/tokenizer_choice.h"

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

/// Who writes the fields by hand means each of them: a slip is refused even beside the field itself, which a
/// file from elsewhere may have.
void refuse_misspelt_fields(const nlohmann::json& fields) {
  const std::vector<std::string>& known = architecture::hugging_face_fields();
  for (const auto& [field, value] : fields.items()) {
    if (std::ranges::find(known, field) != known.end()) {
      continue;
    }
    refuse_other_name(fields, field);
    const std::string meant = slip_of(field, known);
    require(meant.empty(), "unknown key model.config.{}; the nearest known key is model.config.{}", field,
            meant);
  }
}

/// How long a sequence may be, scaled rotary positions included.
std::int64_t positions_of(const ModelConfig& model) {
  const architecture::RotarySettings& rotary = model.rotary;
  double scaled = 0.0;
  switch (rotary.scaling) {
    case architecture::RotaryScaling::none:
    case architecture::RotaryScaling::llama3:    // counted in max_position_embeddings
    case architecture::RotaryScaling::longrope:  // likewise
      break;
    case architecture::RotaryScaling::linear:
    case architecture::RotaryScaling::dynamic:
      scaled = rotary.factor * static_cast<double>(model.max_position_embeddings);
      break;
    case architecture::RotaryScaling::yarn:
      scaled = rotary.factor * rotary.original_positions;
      break;
  }
  return std::max(model.max_position_embeddings, static_cast<std::int64_t>(scaled));
}

}  // namespace

ModelConfig model_of(const TrainConfig& config, std::int64_t tokenizer_vocab) {
  const bool from_file = !config.model.path.empty();
  const std::string where = from_file ? config_file(config.model.path).string() : "model.config";
  nlohmann::json source = from_file ? read_strict_json(where) : config.model.config;
  if (!from_file) {
    refuse_misspelt_fields(source);
  }
  if (!source.contains("vocab_size")) {
    source["vocab_size"] = tokenizer_vocab;
  }
  if (config.moe.router_load_balancing_type == LoadBalancing::bias) {
    source["moe_router_enable_expert_bias"] = true;
  }
  ModelConfig result = architecture::parse_model_config(source, where);
  architecture::require_trainable(result, where);
  require(
      result.vocab_size >= tokenizer_vocab,
      "{}: vocab_size is {}, but the tokenizer {} has {} tokens: raise vocab_size or choose the model's own "
      "tokenizer (data.tokenizer)",
      where, result.vocab_size, tokenizer_choice(config), tokenizer_vocab);
  const std::int64_t positions = positions_of(result);
  require(config.data.seq_length <= positions,
          "data.seq_length = {}, but the model has {} positions (max_position_embeddings of {}): --set "
          "data.seq_length={} or less",
          config.data.seq_length, positions, where, positions);
  return result;
}

}  // namespace expedite::train
