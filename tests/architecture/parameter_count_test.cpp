#include "expedite/architecture/parameter_count.h"

#include <gtest/gtest.h>

#include <string>

#include "expedite/base/error.h"
#include "expedite/base/strict_json.h"

namespace expedite::architecture {
namespace {

using nlohmann::json;

/// What parse_model_config says against `source`; "" when it has nothing against it.
std::string refusal(const json& source) {
  try {
    (void)parse_model_config(source, "config.json");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

json llama_config() {
  return {{"model_type", "llama"},     {"vocab_size", 128256},      {"hidden_size", 4096},
          {"num_hidden_layers", 32},   {"num_attention_heads", 32}, {"num_key_value_heads", 8},
          {"intermediate_size", 14336}};
}

json deepseek_config() {
  return {{"model_type", "deepseek_v3"},   {"vocab_size", 129280},          {"hidden_size", 7168},
          {"num_hidden_layers", 61},       {"num_attention_heads", 128},    {"num_key_value_heads", 128},
          {"intermediate_size", 18432},    {"moe_intermediate_size", 2048}, {"n_routed_experts", 256},
          {"num_experts_per_tok", 8},      {"n_shared_experts", 1},         {"first_k_dense_replace", 3},
          {"moe_layer_freq", 1},           {"q_lora_rank", 1536},           {"kv_lora_rank", 512},
          {"qk_nope_head_dim", 128},       {"qk_rope_head_dim", 64},        {"v_head_dim", 128},
          {"num_nextn_predict_layers", 1}, {"topk_method", "noaux_tc"}};
}

struct Published {
  const char* name;
  double total;   // billions
  double active;  // billions; 0: not published
  double within;  // of the published figure, which is rounded
};

class BuiltinModel : public testing::TestWithParam<Published> {};

TEST_P(BuiltinModel, HasThePublishedNumberOfParameters) {
  const Published& published = GetParam();
  const ModelConfig* model = find_builtin_model(published.name);
  ASSERT_NE(model, nullptr);
  EXPECT_NEAR(static_cast<double>(total_parameters(*model)) / 1e9, published.total,
              published.within * published.total);
  if (published.active > 0) {
    EXPECT_NEAR(static_cast<double>(active_parameters(*model)) / 1e9, published.active,
                0.04 * published.active);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Published, BuiltinModel,
    testing::Values(
        Published{"deepseek-v3", 671.0, 37.0, 0.001}, Published{"deepseek-v2", 236.0, 21.0, 0.003},
        Published{"kimi-k2", 1026.0, 32.0, 0.002}, Published{"qwen3-30b-a3b", 30.53, 3.3, 0.001},
        Published{"qwen3-235b-a22b", 235.1, 22.0, 0.001}, Published{"mixtral-8x7b", 46.7, 12.9, 0.001},
        Published{"mixtral-8x22b", 140.6, 39.0, 0.001}, Published{"gpt-oss-120b", 116.83, 0.0, 0.001},
        Published{"pangu-ultra-moe-718b", 718.0, 39.0, 0.002}, Published{"gpt3-175b", 174.6, 0.0, 0.001},
        Published{"llama2-13b", 13.016, 0.0, 0.001}, Published{"llama2-70b", 68.98, 0.0, 0.001},
        Published{"llama3-8b", 8.03, 0.0, 0.001}, Published{"llama3-70b", 70.55, 0.0, 0.001},
        Published{"llama3-405b", 405.85, 0.0, 0.001}),
    [](const auto& parameter) {
      std::string name = parameter.param.name;
      std::erase(name, '-');
      return name;
    });

TEST(ParameterCount, CountsMultiTokenPrediction) {
  const ModelConfig& model = *find_builtin_model("deepseek-v3");
  EXPECT_EQ(model.count(LayerKind::dense), 3);
  // The published checkpoint has 14 billion more; it repeats the shared embedding and head.
  EXPECT_NEAR(static_cast<double>(total_parameters(model, true) - total_parameters(model)), 11.6e9, 0.1e9);
}

TEST(ParameterCount, ReadsAlternatingWindows) {
  EXPECT_EQ(find_builtin_model("gpt-oss-120b")->windowed_layers(), 18);
}

TEST(ParameterCount, ReadsGpt2) {
  const ModelConfig read = parse_model_config({{"model_type", "gpt2"},
                                               {"vocab_size", 50257},
                                               {"n_embd", 768},
                                               {"n_head", 12},
                                               {"n_layer", 12},
                                               {"n_positions", 1024}},
                                              "config.json");
  EXPECT_EQ(total_parameters(read), 124439808);
}

TEST(ParameterCount, RefusesAbsurdFigures) {
  const auto with = [](json source, const char* field, const json& value) {
    source[field] = value;
    return refusal(source);
  };
  EXPECT_NE(with(llama_config(), "hidden_size", -1).find("hidden_size must be"), std::string::npos);
  EXPECT_NE(with(llama_config(), "hidden_size", 1e30).find("hidden_size must be"), std::string::npos);
  EXPECT_NE(with(llama_config(), "num_hidden_layers", 100000).find("num_hidden_layers"), std::string::npos);
  json huge = deepseek_config();
  huge.update({{"n_routed_experts", 4096}, {"moe_intermediate_size", 1 << 20}, {"hidden_size", 1 << 20}});
  EXPECT_NE(refusal(huge).find("parameters"), std::string::npos);
}

TEST(ParameterCount, NamesTheNearestBuiltinModel) {
  try {
    (void)load_model_config("deepsek-v3");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("nearest is deepseek-v3"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace expedite::architecture
