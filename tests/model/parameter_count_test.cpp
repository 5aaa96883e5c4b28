// The closed form of a model's parameters against the list of its tensors, for every family.
#include "expedite/architecture/parameter_count.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "expedite/hf/names.h"

namespace expedite::model {
namespace {

void expect_as_listed(const ModelConfig& config) {
  std::int64_t total = 0;
  std::int64_t attention = 0;
  for (const hf::ParameterSpec& spec : hf::parameters(config)) {
    total += spec.elements();
    const bool of_attention = spec.name.find(".self_attn.") != std::string::npos;
    attention += spec.layer == 0 && of_attention ? spec.elements() : 0;
  }
  EXPECT_EQ(architecture::total_parameters(config), total);
  EXPECT_EQ(architecture::attention_parameters(config), attention);
}

TEST(ParameterCount, IsThatOfTheTensors) {
  for (const auto& folder : std::filesystem::directory_iterator(EXPEDITE_FIXTURES "/hf")) {
    SCOPED_TRACE(folder.path().string());
    nlohmann::json source =
        nlohmann::json::parse(architecture::read_model_config(folder.path() / "config.json").source);
    expect_as_listed(architecture::parse_model_config(source, "test"));
    source["attention_bias"] = source["model_type"] != "mixtral";
    source["tie_word_embeddings"] = true;
    expect_as_listed(architecture::parse_model_config(source, "test"));
  }
}

TEST(ParameterCount, IsThatOfTheTensorsOfPublishedModels) {
  for (const char* name : {"deepseek-v2", "deepseek-v3", "gpt-oss-120b", "qwen3-30b-a3b", "llama3-8b"}) {
    SCOPED_TRACE(name);
    expect_as_listed(*architecture::find_builtin_model(name));
  }
}

}  // namespace
}  // namespace expedite::model
