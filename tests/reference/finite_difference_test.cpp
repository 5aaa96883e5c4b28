// The reference's gradients against differences of its own losses, over the options that no fixture has.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "expedite/base/random.h"
#include "tests/reference/model.h"

namespace expedite::reference {
namespace {

using nlohmann::json;

struct Case {
  const char* name;
  json changes;
};

void PrintTo(const Case& option, std::ostream* stream) {
  *stream << option.name;
}

json tiny_config(const json& changes) {
  json config = {{"model_type", "qwen3_moe"},
                 {"vocab_size", 11},
                 {"hidden_size", 6},
                 {"num_hidden_layers", 3},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 4},
                 {"num_experts", 5},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 3},
                 {"intermediate_size", 7},
                 {"norm_topk_prob", true},
                 {"mlp_only_layers", {1}}};
  config.update(changes);
  return config;
}

// Shared experts, groups, and a dense first layer.
json deepseek_moe(const json& changes) {
  json config = {{"n_routed_experts", 6},     {"n_shared_experts", 2},  {"n_group", 3},
                 {"topk_group", 2},           {"norm_topk_prob", true}, {"routed_scaling_factor", 2.5},
                 {"first_k_dense_replace", 1}};
  config.update(changes);
  return config;
}

class FiniteDifference : public testing::TestWithParam<Case> {
 protected:
  FiniteDifference()
      : config_(model::parse_model_config(tiny_config(GetParam().changes), "test")),
        parameters_(random_parameters(config_, 17, 0.5)) {}

  // Central difference of one loss by one parameter.
  double slope(double& parameter, double Result::*loss) const {
    constexpr double kStep = 1e-6;
    const double kept = parameter;
    parameter = kept + kStep;
    const double above = run(config_, parameters_, kSequences, Options::forward_only()).*loss;
    parameter = kept - kStep;
    const double below = run(config_, parameters_, kSequences, Options::forward_only()).*loss;
    parameter = kept;
    return (above - below) / (2 * kStep);
  }

  void expect_slopes(const Gradients& gradients, double Result::*loss) {
    ASSERT_FALSE(gradients.empty());
    double largest = 0.0;
    for (const auto& [name, gradient] : gradients) {
      std::vector<double>& values = parameters_.at(name);
      ASSERT_EQ(gradient.size(), values.size()) << name;
      const Philox random(5, stream_of(name));
      for (std::uint64_t sample = 0; sample < 3; ++sample) {
        const std::size_t i = random.bits(sample) % values.size();
        EXPECT_NEAR(gradient[i], slope(values[i], loss), 1e-7 + 1e-6 * std::abs(gradient[i]))
            << name << "[" << i << "]";
        largest = std::max(largest, std::abs(gradient[i]));
      }
    }
    EXPECT_GT(largest, 1e-4);
  }

  // Lengths that differ, with one that has no target and one that is empty.
  const std::vector<std::vector<int>> kSequences = {{3, 1, 4, 1, 5, 9, 2}, {6}, {}, {5, 3, 10, 8}};
  model::ModelConfig config_;
  mutable Parameters parameters_;
};

TEST_P(FiniteDifference, AgreesWithEveryGradient) {
  const Result result = run(config_, parameters_, kSequences, {true, true, true, true});
  expect_slopes(result.grads, &Result::loss);
  expect_slopes(result.grads_aux, &Result::aux_loss);
  expect_slopes(result.grads_z, &Result::z_loss);
  expect_slopes(result.grads_sequence_aux, &Result::sequence_aux_loss);
}

INSTANTIATE_TEST_SUITE_P(
    Options, FiniteDifference,
    testing::Values(
        Case{"plain", json::object()}, Case{"no_renormalise", {{"norm_topk_prob", false}}},
        Case{"sigmoid_with_bias",
             {{"scoring_func", "sigmoid"},
              {"moe_router_enable_expert_bias", true},
              {"routed_scaling_factor", 2.5}}},
        Case{"sigmoid_no_renormalise",
             {{"scoring_func", "sigmoid"}, {"norm_topk_prob", false}, {"routed_scaling_factor", 0.5}}},
        Case{"softmax_with_bias", {{"moe_router_enable_expert_bias", true}}},
        Case{"tied", {{"tie_word_embeddings", true}}}, Case{"attention_bias", {{"attention_bias", true}}},
        Case{"sliding_window", {{"use_sliding_window", true}, {"sliding_window", 2}}},
        Case{"every_expert", {{"num_experts_per_tok", 5}, {"scoring_func", "sigmoid"}}},
        Case{"one_expert", {{"num_experts_per_tok", 1}, {"norm_topk_prob", false}}},
        Case{"yarn",
             {{"rope_scaling",
               {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 8192}}}}},
        Case{"qwen2_moe", {{"model_type", "qwen2_moe"}, {"shared_expert_intermediate_size", 5}}},
        Case{"dots1", deepseek_moe({{"model_type", "dots1"}})},
        Case{"dots1_one_group", deepseek_moe({{"model_type", "dots1"},
                                              {"n_group", 1},
                                              {"topk_group", 1},
                                              {"norm_topk_prob", false},
                                              {"n_shared_experts", 0},
                                              {"attention_bias", true}})},
        Case{"glm4_moe",
             deepseek_moe({{"model_type", "glm4_moe"}, {"attention_bias", true}, {"use_qk_norm", true}})},
        Case{"glm4_moe_yarn", deepseek_moe({{"model_type", "glm4_moe"},
                                            {"head_dim", 8},
                                            {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}})},
        Case{"mixtral", {{"model_type", "mixtral"}, {"intermediate_size", 3}, {"sliding_window", 3}}}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace expedite::reference
