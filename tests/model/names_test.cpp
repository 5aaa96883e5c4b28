#include "expedite/model/names.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "expedite/model/safetensors.h"

namespace expedite::model {
namespace {

class EveryFixture : public testing::TestWithParam<const char*> {};

TEST_P(EveryFixture, HasExactlyTheListedParameters) {
  const std::string folder = std::string(EXPEDITE_FIXTURES "/hf/") + GetParam();
  const ModelConfig config = read_model_config(folder + "/config.json");
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
  const ModelConfig config = parse_model_config({{"model_type", "qwen3_moe"},
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

TEST(ParameterNames, KnowMixtralsExperts) {
  const ParameterNames names(Family::mixtral);
  EXPECT_EQ(names.expert_gate(3, 7), "model.layers.3.block_sparse_moe.experts.7.w1.weight");
  EXPECT_EQ(names.expert_up(3, 7), "model.layers.3.block_sparse_moe.experts.7.w3.weight");
  EXPECT_EQ(names.expert_down(3, 7), "model.layers.3.block_sparse_moe.experts.7.w2.weight");
  EXPECT_EQ(names.selection_bias(3), "model.layers.3.block_sparse_moe.gate.e_score_correction_bias");
}

}  // namespace
}  // namespace expedite::model
