// What each rank holds of a model, and where.
#include "expedite/model/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "expedite/model/names.h"

namespace expedite::model {
namespace {

ModelConfig config(std::int64_t experts, bool tied = false) {
  return parse_model_config({{"model_type", "qwen3_moe"},
                             {"vocab_size", 50},
                             {"hidden_size", 24},
                             {"num_hidden_layers", 3},
                             {"num_attention_heads", 2},
                             {"num_key_value_heads", 1},
                             {"head_dim", 8},
                             {"num_experts", experts},
                             {"num_experts_per_tok", std::max<std::int64_t>(experts / 2, 1)},
                             {"moe_intermediate_size", 10},
                             {"intermediate_size", 14},
                             {"mlp_only_layers", {1}},
                             {"attention_bias", true},
                             {"moe_router_enable_expert_bias", true},
                             {"tie_word_embeddings", tied}},
                            "test");
}

ModelConfig with_shared_experts(const char* model_type) {
  return parse_model_config({{"model_type", model_type},
                             {"vocab_size", 50},
                             {"hidden_size", 24},
                             {"num_hidden_layers", 2},
                             {"num_attention_heads", 2},
                             {"num_key_value_heads", 1},
                             {"head_dim", 8},
                             {"num_experts", 5},
                             {"n_routed_experts", 5},
                             {"n_shared_experts", 2},
                             {"num_experts_per_tok", 2},
                             {"moe_intermediate_size", 10},
                             {"intermediate_size", 14},
                             {"shared_expert_intermediate_size", 18},
                             {"attention_bias", true},
                             {"use_qk_norm", true}},
                            "test");
}

std::vector<ModelConfig> every_kind(std::int64_t experts, bool tied = false) {
  return {config(experts, tied), with_shared_experts("qwen2_moe"), with_shared_experts("dots1"),
          with_shared_experts("glm4_moe")};
}

void expect_every_tensor(const ModelConfig& model, int rank) {
  const std::vector<ParameterSpec> specs = parameters(model);
  MemoryPool pool;
  Parameters held(model, DType::f32, {.first_expert = {0, 2, 2, 5}, .ep_rank = rank}, State::weights, pool);
  // The order within an attention block is free; names and shapes are not.
  std::map<std::string, std::vector<std::int64_t>> expected;
  for (const ParameterSpec& spec : specs) {
    expected[spec.name] = spec.shape;
  }
  std::int64_t total = 0;
  for (const CheckpointTensor& tensor : held.tensors()) {
    std::vector<std::int64_t> shape;
    for (int i = 0; i < tensor.shape.rank(); ++i) {
      shape.push_back(tensor.shape[i]);
    }
    EXPECT_EQ(expected.at(tensor.name), shape) << tensor.name;
    total += tensor.shape.elements();
  }
  EXPECT_EQ(held.tensors().size(), specs.size());
  EXPECT_EQ(held.total_parameters(), total);
}

TEST(Parameters, ListEveryTensorInCheckpointOrderOnEveryRank) {
  for (const ModelConfig& model : every_kind(5, true)) {
    for (int rank = 0; rank < 3; ++rank) {
      expect_every_tensor(model, rank);
    }
  }
}

// Each element of each parameter belongs to one tensor, and every expert lives on one rank.
void expect_cover(const ModelConfig& model) {
  std::map<std::string, int> owners;
  for (int rank = 0; rank < 2; ++rank) {
    MemoryPool pool;
    Parameters held(model, DType::bf16, {.first_expert = {0, 2, model.experts}, .ep_rank = rank},
                    State::training, pool);
    std::map<Parameter*, std::set<std::int64_t>> covered;
    for (const CheckpointTensor& tensor : held.tensors()) {
      owners[tensor.name] += tensor.parameter != nullptr ? 1 : 0;
      for (std::int64_t i = 0; tensor.parameter != nullptr && i < tensor.shape.elements(); ++i) {
        EXPECT_TRUE(covered[tensor.parameter].insert(tensor.offset + i).second) << tensor.name;
      }
    }
    std::size_t parameters = 0;
    for (const Bucket& bucket : held.buckets()) {
      for (Parameter* parameter : bucket.parameters) {
        EXPECT_EQ(static_cast<std::int64_t>(covered.at(parameter).size()), parameter->shape.elements());
        EXPECT_EQ(*covered.at(parameter).begin(), 0);
        ++parameters;
      }
    }
    EXPECT_EQ(parameters, covered.size());
  }
  for (const ParameterSpec& spec : parameters(model)) {
    EXPECT_EQ(owners.at(spec.name), !spec.trained ? 0 : spec.expert >= 0 ? 1 : 2) << spec.name;
  }
}

TEST(Parameters, TensorsCoverTheirParametersWithoutOverlap) {
  for (const ModelConfig& model : every_kind(3)) {
    expect_cover(model);
  }
}

TEST(Parameters, KeepTheSharedExpertWithTheDensePartOfItsLayer) {
  MemoryPool pool;
  Parameters held(with_shared_experts("qwen2_moe"), DType::bf16, {.first_expert = {0, 5}, .ep_rank = 0},
                  State::training, pool);
  const SharedExpertWeights& shared = held.layer(1).shared;
  EXPECT_EQ(shared.gate_up->shape, (Shape{36, 24}));
  EXPECT_EQ(shared.down->shape, (Shape{24, 18}));
  EXPECT_EQ(shared.gate->shape, (Shape{1, 24}));
  const std::vector<Parameter*>& dense = held.bucket(1, false)->parameters;
  for (Parameter* parameter : {shared.gate_up, shared.down, shared.gate}) {
    EXPECT_EQ(std::count(dense.begin(), dense.end(), parameter), 1);
    EXPECT_EQ(parameter->weight.dtype(), DType::bf16);
    EXPECT_TRUE(parameter->decay);
  }
  Parameters glm(with_shared_experts("glm4_moe"), DType::f32, {.first_expert = {0, 5}, .ep_rank = 0},
                 State::weights, pool);
  EXPECT_EQ(glm.layer(0).shared.gate_up, nullptr);  // a dense layer
  EXPECT_EQ(glm.layer(1).shared.gate_up->shape, (Shape{40, 24}));
  EXPECT_EQ(glm.layer(1).shared.gate, nullptr);
  EXPECT_EQ(glm.layer(1).attention.output_bias, nullptr);
}

void expect_initial_values(const ModelConfig& model) {
  MemoryPool pool;
  Parameters held(model, DType::f32, {.first_expert = {0, model.experts}, .ep_rank = 0}, State::weights,
                  pool);
  held.initialize(1);
  for (const CheckpointTensor& tensor : held.tensors()) {
    if (tensor.parameter == nullptr) {
      continue;
    }
    const float* values = tensor.parameter->weight.as<float>() + tensor.offset;
    const std::int64_t count = tensor.shape.elements();
    double mean = 0.0;
    double square = 0.0;
    for (std::int64_t i = 0; i < count; ++i) {
      mean += static_cast<double>(values[i]) / static_cast<double>(count);
      square += static_cast<double>(values[i]) * static_cast<double>(values[i]) / static_cast<double>(count);
    }
    if (tensor.shape.rank() == 2) {  // 0.02, and five deviations of what so few elements estimate
      const double error = 5.0 * 0.02 / std::sqrt(static_cast<double>(count));
      EXPECT_NEAR(mean, 0.0, error) << tensor.name;
      EXPECT_NEAR(std::sqrt(square), 0.02, error) << tensor.name;
    } else {
      const double expected = tensor.name.ends_with(".bias") ? 0.0 : 1.0;
      EXPECT_NEAR(mean, expected, 1e-12) << tensor.name;
      EXPECT_NEAR(square, expected, 1e-12) << tensor.name;
    }
  }
}

TEST(Parameters, InitializeDrawsMatricesFromANormalDistribution) {
  for (const ModelConfig& model : every_kind(4)) {
    expect_initial_values(model);
  }
}

TEST(Parameters, InitializeStartsOver) {
  MemoryPool pool;
  Parameters held(config(4), DType::bf16, {.first_expert = {0, 4}, .ep_rank = 0}, State::training, pool);
  held.initialize(1);
  const float first = held.embedding().master.as<float>()[0];
  held.layer(0).moe.selection_bias[2] = 1.0F;
  held.initialize(2);
  EXPECT_NE(held.embedding().master.as<float>()[0], first);
  EXPECT_EQ(held.layer(0).moe.selection_bias, std::vector<float>(4, 0.0F));
  held.initialize(1);
  EXPECT_EQ(held.embedding().master.as<float>()[0], first);
  EXPECT_EQ(static_cast<float>(held.embedding().weight.as<bf16>()[0]), static_cast<float>(bf16(first)));
}

TEST(Parameters, CountThoseThatATokenUses) {
  for (const ModelConfig& model : every_kind(4)) {
    MemoryPool pool;
    const Parameters held(model, DType::f32, {.first_expert = {0, model.experts}, .ep_rank = 0},
                          State::weights, pool);
    std::int64_t active = 0;
    for (const ParameterSpec& spec : parameters(model)) {
      active += spec.expert < 2 ? spec.elements() : 0;  // two experts
    }
    EXPECT_EQ(held.active_parameters(), active);
  }
}

TEST(Parameters, RefuseOtherTypes) {
  MemoryPool pool;
  EXPECT_THROW(
      Parameters(config(2), DType::i32, {.first_expert = {0, 2}, .ep_rank = 0}, State::weights, pool), Error);
}

}  // namespace
}  // namespace expedite::model
