// The table of families: model_type in config.json, and who reads the rest.
#include <algorithm>
#include <array>
#include <filesystem>
#include <string>

#include "expedite/architecture/family_reader.h"
#include "expedite/architecture/hugging_face_fields.h"
#include "expedite/architecture/parameter_count.h"
#include "expedite/base/error.h"
#include "expedite/base/log.h"
#include "expedite/base/strict_json.h"
#include "expedite/base/text.h"

namespace expedite::architecture {
namespace {

struct FamilyEntry {
  const char* model_type;
  Family family;
  const char* class_name;  // Hugging Face's
  void (*read)(const ConfigFields&, ModelConfig&);
};

// To add a family: a line here, its reader, its defaults, its tensors' names (model/names.cpp), a fixture.
constexpr std::array kFamilies = {
    FamilyEntry{"llama", Family::llama, "LlamaForCausalLM", read_llama},
    FamilyEntry{"mistral", Family::mistral, "MistralForCausalLM", read_mistral},
    FamilyEntry{"qwen2", Family::qwen2, "Qwen2ForCausalLM", read_qwen2},
    FamilyEntry{"qwen3", Family::qwen3, "Qwen3ForCausalLM", read_qwen3},
    FamilyEntry{"qwen2_moe", Family::qwen2_moe, "Qwen2MoeForCausalLM", read_qwen2_moe},
    FamilyEntry{"qwen3_moe", Family::qwen3_moe, "Qwen3MoeForCausalLM", read_qwen3_moe},
    FamilyEntry{"mixtral", Family::mixtral, "MixtralForCausalLM", read_mixtral},
    FamilyEntry{"olmoe", Family::olmoe, "OlmoeForCausalLM", read_olmoe},
    FamilyEntry{"gpt_oss", Family::gpt_oss, "GptOssForCausalLM", read_gpt_oss},
    FamilyEntry{"dots1", Family::dots1, "Dots1ForCausalLM", read_dots1},
    FamilyEntry{"glm4_moe", Family::glm4_moe, "Glm4MoeForCausalLM", read_glm4_moe},
    FamilyEntry{"deepseek_v2", Family::deepseek_v2, "DeepseekV2ForCausalLM", read_deepseek_v2},
    FamilyEntry{"deepseek_v3", Family::deepseek_v3, "DeepseekV3ForCausalLM", read_deepseek_v3},
    FamilyEntry{"kimi_k2", Family::deepseek_v3, "DeepseekV3ForCausalLM", read_deepseek_v3},
    FamilyEntry{"gpt2", Family::gpt2, "GPT2LMHeadModel", read_gpt2},
};

/// Fields that would change the model's arithmetic and that training does not build must not pass unnoticed.
void note_what_is_not_trained(const ConfigFields& fields, ModelConfig& config) {
  const std::string activation = fields.text("hidden_act", "silu");
  if (activation != "silu") {
    config.untrained.push_back(fmt::format("hidden_act \"{}\" is not built; only \"silu\" is", activation));
  }
  if (fields.number("attention_dropout", 0.0, 0.0) != 0.0) {
    config.untrained.emplace_back("attention_dropout is not built; it must be 0");
  }
  if (fields.number("router_jitter_noise", 0.0, 0.0) != 0.0) {
    config.untrained.emplace_back("router_jitter_noise is not built; it must be 0");
  }
  if (const nlohmann::json* map = fields.find("quantization_config")) {
    const ConfigFields quantization(*map, fields.where() + ": quantization_config");
    config.quantization = quantization.text("quant_method", "unnamed");
    if (config.quantization != "mxfp4" || config.family != Family::gpt_oss) {
      config.untrained.push_back(fmt::format(
          "quantization_config: weights quantised by \"{}\" are not read; only gpt_oss's mxfp4 are",
          config.quantization));
    }
  }
}

}  // namespace

std::int64_t ModelConfig::windowed_layers() const {
  return std::ranges::count(windowed, true);
}

std::int64_t ModelConfig::count(LayerKind kind) const {
  return std::ranges::count(sparse, kind == LayerKind::moe);
}

void check_sizes(const ModelConfig& model, const std::string& where) {
  require(model.heads >= 1 && model.kv_heads >= 1 && model.heads % model.kv_heads == 0,
          "{}: {} attention heads cannot share {} key-value heads evenly", where, model.heads,
          model.kv_heads);
  require(model.count(LayerKind::moe) == 0 ||
              (model.experts_per_token >= 1 && model.experts_per_token <= model.experts),
          "{}: experts per token = {} must be from 1 to {}", where, model.experts_per_token, model.experts);
  require(model.count(LayerKind::moe) == 0 || model.moe_intermediate_size >= 1,
          "{}: FFN size of an expert = {} must be 1 or more", where, model.moe_intermediate_size);
  require(model.count(LayerKind::dense) == 0 || model.intermediate_size >= 1,
          "{}: FFN size = {} must be 1 or more", where, model.intermediate_size);
  // In floating point, because the exact sum of absurd sizes does not fit into 64 bits.
  constexpr double kMostParameters = 1e15;
  const auto real = [](std::int64_t number) { return static_cast<double>(number); };
  const double experts = real(model.count(LayerKind::moe)) * real(model.experts) * 3.0 *
                         real(model.hidden_size) * real(model.moe_intermediate_size);
  const double dense = real(model.layers) * real(model.hidden_size) *
                       (3.0 * real(std::max(model.intermediate_size, model.shared_expert_intermediate_size)) +
                        4.0 * real(model.heads) * real(std::max(model.head_dim, model.value_dim)));
  require(experts + dense <= kMostParameters,
          "{}: these sizes make about {:.1e} parameters; models have at most {:.0e}", where, experts + dense,
          kMostParameters);
}

namespace {

/// Files that programs write have every size. One that has not was written by hand, and is planned for as
/// transformers would load it.
void note_missing_sizes(const nlohmann::json& source, const std::string& where, ModelConfig& config) {
  std::vector<std::string> missing;
  if (config.family != Family::gpt2) {
    for (const char* field :
         {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}) {
      if (!source.contains(field)) {
        missing.emplace_back(field);
      }
    }
  }
  constexpr std::array kExperts = {"num_experts", "num_local_experts", "n_routed_experts"};
  if (config.experts > 0 &&
      std::ranges::none_of(kExperts, [&](auto field) { return source.contains(field); })) {
    missing.emplace_back("the number of experts");
  }
  if (!missing.empty()) {
    config.notes.push_back(fmt::format("{}: {} not given: what transformers takes for {} then is planned for",
                                       where, fmt::join(missing, ", "), source.value("model_type", "")));
  }
}

}  // namespace

std::vector<std::string> legal_model_types() {
  std::vector<std::string> names;
  for (const FamilyEntry& entry : kFamilies) {
    names.emplace_back(entry.model_type);
  }
  return names;
}

const char* hugging_face_class(Family family) {
  return std::ranges::find(kFamilies, family, &FamilyEntry::family)->class_name;
}

ModelConfig parse_model_config(const nlohmann::json& source, const std::string& where) {
  const ConfigFields fields(source, where);
  const std::string type = fields.text("model_type", "");
  require(!type.empty(), "{}: the field model_type is missing; legal are {}", where,
          join_choices(legal_model_types()));
  const auto entry =
      std::ranges::find_if(kFamilies, [&](const FamilyEntry& family) { return type == family.model_type; });
  require(entry != kFamilies.end(), "{}: model_type \"{}\" is not known; legal are {}", where, type,
          join_choices(legal_model_types()));
  ModelConfig config;
  config.family = entry->family;
  config.name = fields.text("_name_or_path", "");
  if (config.name.empty()) {
    config.name = type;
  }
  entry->read(fields, config);
  if (config.family != Family::gpt2) {
    note_what_is_not_trained(fields, config);
  }
  check_sizes(config, where);
  fields.refuse_slips(hugging_face_fields(), config.notes);
  config.source = source.dump();
  return config;
}

ModelConfig read_model_config(const std::filesystem::path& config_json) {
  return parse_model_config(read_strict_json(config_json), config_json.string());
}

void require_trainable(const ModelConfig& config, const std::string& where) {
  require(config.untrained.empty(), "{}: {}", where, fmt::join(config.untrained, "; "));
}

ModelConfig load_model_config(const std::string& name_or_path) {
  if (const ModelConfig* builtin = find_builtin_model(name_or_path)) {
    return *builtin;
  }
  std::filesystem::path path = name_or_path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    path /= "config.json";
  }
  if (!std::filesystem::exists(path, ignored)) {
    const std::vector<std::string> names = builtin_model_names();
    fail("model {}: neither a config.json nor a built-in model; the nearest is {}, and built in are {}",
         name_or_path, nearest_name(name_or_path, names), join_choices(names));
  }
  const nlohmann::json source = read_strict_json(path);
  ModelConfig model = parse_model_config(source, path.string());
  note_missing_sizes(source, path.string(), model);
  std::ranges::for_each(model.notes, warn_once);
  return model;
}

}  // namespace expedite::architecture
