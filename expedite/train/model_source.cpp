#include "expedite/train/model_source.h"

#include <filesystem>

#include "expedite/base/error.h"

namespace expedite::train {
namespace {

/// The config.json that `model.path` names, directly or as its folder.
std::filesystem::path config_file(const std::string& path) {
  const std::filesystem::path given(path);
  return std::filesystem::is_directory(given) ? given / "config.json" : given;
}

}  // namespace

model::ModelConfig model_of(const TrainConfig& config, std::int64_t tokenizer_vocab) {
  const bool from_file = !config.model.path.empty();
  const std::string where = from_file ? config_file(config.model.path).string() : "model.config";
  nlohmann::json source = from_file ? model::read_model_config(where).source : config.model.config;
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
  return result;
}

}  // namespace expedite::train
