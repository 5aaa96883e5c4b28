// What each rank holds of a model, and where.
#include "expedite/model/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "expedite/hf/names.h"

namespace expedite::model {
namespace {

ModelConfig config(std::int64_t experts, bool tied = false) {
  return architecture::parse_model_config({{"model_type", "qwen3_moe"},
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
  return architecture::parse_model_config({{"model_type", model_type},
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

ModelConfig with_latent_attention(const char* model_type, const nlohmann::json& q_lora_rank) {
  return architecture::parse_model_config({{"model_type", model_type},
                                           {"vocab_size", 30},
                                           {"hidden_size", 24},
                                           {"num_hidden_layers", 2},
                                           {"num_attention_heads", 4},
                                           {"num_key_value_heads", 4},
                                           {"q_lora_rank", q_lora_rank},
                                           {"kv_lora_rank", 6},
                                           {"qk_nope_head_dim", 4},
                                           {"qk_rope_head_dim", 2},
                                           {"v_head_dim", 3},
                                           {"attention_bias", true},
                                           {"n_group", 1},
                                           {"topk_group", 1},
                                           {"n_routed_experts", 5},
                                           {"n_shared_experts", 2},
                                           {"num_experts_per_tok", 2},
                                           {"first_k_dense_replace", 1},
                                           {"intermediate_size", 20},
                                           {"moe_intermediate_size", 10}},
                                          "test");
}

std::vector<ModelConfig> every_kind(std::int64_t experts, bool tied = false) {
  return {config(experts, tied),
          with_shared_experts("qwen2_moe"),
          with_shared_experts("dots1"),
          with_shared_experts("glm4_moe"),
          with_shared_experts("olmoe"),
          with_shared_experts("gpt_oss"),
          with_shared_experts("llama"),
          with_latent_attention("deepseek_v2", nullptr),
          with_latent_attention("deepseek_v3", 10)};
}

void expect_every_tensor(const ModelConfig& model, int rank) {
  const std::vector<hf::ParameterSpec> specs = hf::parameters(model);
  MemoryPool pool;
  Parameters held(model, DType::f32, {.first_expert = {0, 2, 2, 5}, .ep_rank = rank}, State::weights, pool);
  // The order within an attention block is free; names and shapes are not.
  std::map<std::string, std::vector<std::int64_t>> expected;
  for (const hf::ParameterSpec& spec : specs) {
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
  SCOPED_TRACE(model.name);
  std::map<std::string, int> owners;
  for (int rank = 0; rank < 2; ++rank) {
    MemoryPool pool;
    Parameters held(
        model, DType::bf16,
        {.first_expert = {0, std::min<std::int64_t>(2, model.experts), model.experts}, .ep_rank = rank},
        State::training, pool);
    std::map<Parameter*, std::set<std::int64_t>> covered;
    for (const CheckpointTensor& tensor : held.tensors()) {
      owners[tensor.name] += 0;
      std::set<std::int64_t> places;
      for (const TensorPart& part : tensor.parts) {
        // Experts that share a tensor are counted once, with the first.
        owners[tensor.name] += part.parameter != nullptr && part.begin == 0 ? 1 : 0;
        for (std::int64_t i = 0; i < part.elements(); ++i) {
          EXPECT_TRUE(places.insert(part.place(i / part.columns, i % part.columns)).second) << tensor.name;
          if (part.parameter != nullptr) {
            EXPECT_TRUE(covered[part.parameter].insert(part.offset + i).second) << tensor.name;
          }
        }
      }
      if (tensor.bias == nullptr) {
        EXPECT_EQ(std::ssize(places), tensor.shape.elements()) << tensor.name;
        EXPECT_EQ(*places.rbegin(), tensor.shape.elements() - 1) << tensor.name;
      }
    }
    std::size_t parameters = 0;
    for (const Bucket& bucket : held.buckets()) {
      for (Parameter* parameter : bucket.parameters) {
        EXPECT_EQ(static_cast<std::int64_t>(covered[parameter].size()), parameter->shape.elements())
            << to_string(parameter->shape);
        EXPECT_TRUE(parameter->shape.elements() == 0 || *covered[parameter].begin() == 0);
        ++parameters;
      }
    }
    EXPECT_EQ(parameters, covered.size());
  }
  for (const hf::ParameterSpec& spec : hf::parameters(model)) {
    EXPECT_EQ(owners.at(spec.name), !spec.trained ? 0 : spec.expert >= 0 || spec.fused ? 1 : 2) << spec.name;
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
    if (tensor.parts.empty()) {
      continue;
    }
    const std::int64_t count = tensor.shape.elements();
    double mean = 0.0;
    double square = 0.0;
    for (const TensorPart& part : tensor.parts) {
      const float* values = part.parameter->weight.as<float>() + part.offset;
      for (std::int64_t i = 0; i < part.elements(); ++i) {
        mean += static_cast<double>(values[i]) / static_cast<double>(count);
        square +=
            static_cast<double>(values[i]) * static_cast<double>(values[i]) / static_cast<double>(count);
      }
    }
    if (!tensor.name.ends_with("bias") &&
        (tensor.shape.rank() > 1 ||
         tensor.name.ends_with("sinks"))) {  // 0.02, and five deviations of what so few elements estimate
      const double error = 5.0 * 0.02 / std::sqrt(static_cast<double>(count));
      EXPECT_NEAR(mean, 0.0, error) << tensor.name;
      EXPECT_NEAR(std::sqrt(square), 0.02, error) << tensor.name;
    } else {
      const double expected = tensor.name.ends_with("bias") ? 0.0 : 1.0;
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
    for (const hf::ParameterSpec& spec : hf::parameters(model)) {
      // Two experts, also of those that lie in one tensor.
      active += spec.fused ? spec.elements() / model.experts * 2 : spec.expert < 2 ? spec.elements() : 0;
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
