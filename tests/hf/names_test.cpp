#include "expedite/hf/names.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "expedite/hf/safetensors.h"

namespace expedite::hf {
namespace {

class EveryFixture : public testing::TestWithParam<const char*> {};

TEST_P(EveryFixture, HasExactlyTheListedParameters) {
  const std::string folder = std::string(EXPEDITE_FIXTURES "/hf/") + GetParam();
  const ModelConfig config = architecture::read_model_config(folder + "/config.json");
  const SafetensorsFile file(folder + "/model.safetensors");
  std::map<std::string, std::vector<std::int64_t>> expected;
  for (const StoredTensor& tensor : file.tensors()) {
    expected[tensor.name] = tensor.shape;
  }
  std::map<std::string, std::vector<std::int64_t>> listed;
  for (const ParameterSpec& parameter : parameters(config)) {
    EXPECT_TRUE(listed.emplace(parameter.name, parameter.shape).second) << parameter.name;
  }
  EXPECT_EQ(listed, expected);
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, EveryFixture,
                         testing::Values("qwen3_moe", "qwen3_moe_dense", "mixtral"));

const ParameterSpec* find(const std::vector<ParameterSpec>& list, const std::string& name) {
  for (const ParameterSpec& parameter : list) {
    if (parameter.name == name) {
      return &parameter;
    }
  }
  return nullptr;
}

TEST(ParameterNames, FollowTheOptions) {
  const ModelConfig config = architecture::parse_model_config({{"model_type", "qwen3_moe"},
                                                               {"vocab_size", 10},
                                                               {"hidden_size", 8},
                                                               {"num_hidden_layers", 2},
                                                               {"num_attention_heads", 2},
                                                               {"num_key_value_heads", 1},
                                                               {"head_dim", 6},
                                                               {"num_experts", 3},
                                                               {"num_experts_per_tok", 2},
                                                               {"attention_bias", true},
                                                               {"tie_word_embeddings", true},
                                                               {"moe_router_enable_expert_bias", true}},
                                                              "test");
  const std::vector<ParameterSpec> list = parameters(config);
  EXPECT_EQ(list.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(list.back().name, "model.norm.weight");
  EXPECT_EQ(list.back().layer, -1);
  EXPECT_EQ(find(list, "lm_head.weight"), nullptr);
  using Extents = std::vector<std::int64_t>;
  EXPECT_EQ(find(list, "model.layers.1.self_attn.q_proj.bias")->shape, (Extents{12}));
  EXPECT_EQ(find(list, "model.layers.1.self_attn.k_proj.bias")->shape, (Extents{6}));
  EXPECT_EQ(find(list, "model.layers.1.self_attn.o_proj.bias")->shape, (Extents{8}));
  EXPECT_EQ(find(list, "model.layers.1.self_attn.o_proj.weight")->shape, (Extents{8, 12}));
  const ParameterSpec* bias = find(list, "model.layers.1.mlp.gate.e_score_correction_bias");
  ASSERT_NE(bias, nullptr);
  EXPECT_EQ(bias->shape, (Extents{3}));
  EXPECT_FALSE(bias->trained);
  const ParameterSpec* down = find(list, "model.layers.1.mlp.experts.2.down_proj.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->expert, 2);
  EXPECT_EQ(down->layer, 1);
  EXPECT_EQ(down->elements(), 8 * 768);
}

std::set<std::string> in_first_layer(const ModelConfig& config) {
  std::set<std::string> names;
  for (const ParameterSpec& parameter : parameters(config)) {
    const std::string layer = "model.layers.0.";
    if (parameter.name.starts_with(layer) && !parameter.name.starts_with(layer + "mlp.experts.")) {
      names.insert(parameter.name.substr(layer.size()));
    }
  }
  return names;
}

nlohmann::json small(const nlohmann::json& changes) {
  nlohmann::json config = {{"vocab_size", 10},          {"hidden_size", 8},
                           {"num_hidden_layers", 1},    {"num_attention_heads", 2},
                           {"num_key_value_heads", 1},  {"num_experts_per_tok", 2},
                           {"moe_intermediate_size", 5}};
  config.update(changes);
  return config;
}

TEST(ParameterNames, AreThoseOfQwen2Moe) {
  const ModelConfig config = architecture::parse_model_config(
      small({{"model_type", "qwen2_moe"}, {"num_experts", 3}, {"shared_expert_intermediate_size", 7}}),
      "test");
  EXPECT_EQ(in_first_layer(config),
            (std::set<std::string>{
                "input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.q_proj.weight",
                "self_attn.q_proj.bias", "self_attn.k_proj.weight", "self_attn.k_proj.bias",
                "self_attn.v_proj.weight", "self_attn.v_proj.bias", "self_attn.o_proj.weight",
                "mlp.gate.weight", "mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight",
                "mlp.shared_expert.down_proj.weight", "mlp.shared_expert_gate.weight"}));
  const std::vector<ParameterSpec> list = parameters(config);
  using Extents = std::vector<std::int64_t>;
  EXPECT_EQ(find(list, "model.layers.0.mlp.shared_expert.up_proj.weight")->shape, (Extents{7, 8}));
  EXPECT_EQ(find(list, "model.layers.0.mlp.shared_expert.down_proj.weight")->shape, (Extents{8, 7}));
  EXPECT_EQ(find(list, "model.layers.0.mlp.shared_expert_gate.weight")->shape, (Extents{1, 8}));
  EXPECT_EQ(find(list, "model.layers.0.mlp.shared_expert_gate.weight")->expert, -1);
}

TEST(ParameterNames, AreThoseOfDots1) {
  const ModelConfig config = architecture::parse_model_config(
      small({{"model_type", "dots1"}, {"n_routed_experts", 4}, {"n_shared_experts", 2}}), "test");
  EXPECT_EQ(in_first_layer(config),
            (std::set<std::string>{
                "input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.q_proj.weight",
                "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.o_proj.weight",
                "self_attn.q_norm.weight", "self_attn.k_norm.weight", "mlp.gate.weight",
                "mlp.gate.e_score_correction_bias", "mlp.shared_experts.gate_proj.weight",
                "mlp.shared_experts.up_proj.weight", "mlp.shared_experts.down_proj.weight"}));
  const std::vector<ParameterSpec> list = parameters(config);
  using Extents = std::vector<std::int64_t>;
  EXPECT_EQ(find(list, "model.layers.0.mlp.shared_experts.gate_proj.weight")->shape, (Extents{10, 8}));
  EXPECT_EQ(find(list, "model.layers.0.mlp.experts.3.gate_proj.weight")->shape, (Extents{5, 8}));
}

TEST(ParameterNames, AreThoseOfGlm4Moe) {
  // The first layer is dense.
  const ModelConfig config = architecture::parse_model_config(
      small({{"model_type", "glm4_moe"}, {"n_routed_experts", 4}, {"attention_bias", true}}), "test");
  EXPECT_EQ(in_first_layer(config),
            (std::set<std::string>{
                "input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.q_proj.weight",
                "self_attn.q_proj.bias", "self_attn.k_proj.weight", "self_attn.k_proj.bias",
                "self_attn.v_proj.weight", "self_attn.v_proj.bias", "self_attn.o_proj.weight",
                "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"}));
}

TEST(ParameterNames, KnowMixtralsExperts) {
  const ParameterNames names(architecture::Family::mixtral);
  EXPECT_EQ(names.expert_gate(3, 7), "model.layers.3.block_sparse_moe.experts.7.w1.weight");
  EXPECT_EQ(names.expert_up(3, 7), "model.layers.3.block_sparse_moe.experts.7.w3.weight");
  EXPECT_EQ(names.expert_down(3, 7), "model.layers.3.block_sparse_moe.experts.7.w2.weight");
  EXPECT_EQ(names.selection_bias(3), "model.layers.3.block_sparse_moe.gate.e_score_correction_bias");
}

}  // namespace
}  // namespace expedite::hf
