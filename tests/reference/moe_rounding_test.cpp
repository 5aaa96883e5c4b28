// The values of the layer with bounds against the reference itself, and its bounds where they can be counted
// by hand.
#include "tests/reference/moe_rounding.h"

#include <gtest/gtest.h>

#include "expedite/base/random.h"
#include "expedite/hf/names.h"
#include "tests/reference/layer.h"

namespace expedite::reference {
namespace {

using schedule::Dispatcher;

ModelConfig layer_config(const nlohmann::json& changes) {
  nlohmann::json config = {{"model_type", "qwen3_moe"},
                           {"vocab_size", 2},
                           {"hidden_size", 10},
                           {"num_hidden_layers", 1},
                           {"num_attention_heads", 2},
                           {"num_key_value_heads", 1},
                           {"head_dim", 4},
                           {"num_experts", 6},
                           {"num_experts_per_tok", 3},
                           {"moe_intermediate_size", 7},
                           {"intermediate_size", 5},
                           {"norm_topk_prob", true},
                           {"max_position_embeddings", 8}};
  config.update(changes);
  return architecture::parse_model_config(config, "test");
}

nlohmann::json deepseek(const nlohmann::json& changes) {
  nlohmann::json config = {
      {"num_key_value_heads", 2}, {"head_dim", nullptr},   {"q_lora_rank", 3}, {"kv_lora_rank", 3},
      {"qk_nope_head_dim", 3},    {"qk_rope_head_dim", 2}, {"v_head_dim", 4},  {"routed_scaling_factor", 1.5},
      {"n_routed_experts", 6},    {"n_group", 3},          {"topk_group", 2},  {"n_shared_experts", 1}};
  config.update(changes);
  return config;
}

Matrix random_matrix(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  Matrix matrix(rows, columns);
  const Philox random(seed, 0);
  for (std::size_t i = 0; i < matrix.values.size(); ++i) {
    matrix.values[i] = random.normal(static_cast<std::int64_t>(i));
  }
  return matrix;
}

/// Three ranks with two experts each, the last two on one node.
moe::ExpertLayout layout(Dispatcher dispatcher) {
  return moe::ExpertLayout(std::vector<std::int64_t>{0, 2, 4, 6}, std::vector<int>{0, 1, 1}, 0, dispatcher);
}

/// Layer 0 without attention: its output projection is zero.
struct Expected {
  Matrix output;
  Matrix grad_input;
  Gradients gradients;
};
Expected expected_of(const ModelConfig& config, const Parameters& parameters, const MoeRows& rows) {
  Parameters without_attention = parameters;
  for (double& weight : without_attention.at(hf::ParameterNames::attention_weight(0, "o"))) {
    weight = 0.0;
  }
  const Context context = make_context(config, without_attention, std::vector{rows.input.rows});
  const LayerTrace trace = layer_forward(context, 0, rows.input);
  Expected expected{trace.output, {}, zero_gradients(config)};
  expected.grad_input = layer_backward(context, 0, trace, rows.grad_output, {}, expected.gradients);
  return expected;
}

void expect_values(const BoundedRow& row, std::span<const double> expected, const std::string& what) {
  ASSERT_EQ(row.size(), expected.size()) << what;
  for (std::size_t i = 0; i < row.size(); ++i) {
    EXPECT_NEAR(row[i].value, expected[i], 1e-11) << what << " " << i;
    EXPECT_GT(row[i].error, 0.0) << what << " " << i;
  }
}

class MoeRoundingValues : public testing::TestWithParam<nlohmann::json> {};

TEST_P(MoeRoundingValues, AreTheReferences) {
  const ModelConfig config = layer_config(GetParam());
  const Parameters parameters = random_parameters(config, 5);
  const MoeRows rows = {random_matrix(6, 10, 1), random_matrix(6, 10, 2), std::vector<int>(6, 1)};
  const Expected expected = expected_of(config, parameters, rows);
  for (const Dispatcher dispatcher : schedule::kDispatchers) {
    const MoeRounding result =
        moe_rounding(config, parameters, DType::bf16, rows, layout(dispatcher), 1, Roundings::all);
    for (std::int64_t t = 0; t < rows.input.rows; ++t) {
      expect_values(result.output[t], expected.output.row(t), "output");
      expect_values(result.grad_input[t], expected.grad_input.row(t), "gradient of the input");
    }
    EXPECT_GT(result.gradients.size(), 1U);
    for (const auto& [name, gradient] : result.gradients) {
      expect_values(gradient, expected.gradients.at(name), name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Routers, MoeRoundingValues,
    testing::Values(nlohmann::json::object(), nlohmann::json{{"norm_topk_prob", false}},
                    nlohmann::json{{"scoring_func", "sigmoid"}, {"routed_scaling_factor", 1.5}},
                    nlohmann::json{{"scoring_func", "sigmoid"}, {"norm_topk_prob", false}},
                    nlohmann::json{{"model_type", "qwen2_moe"}, {"shared_expert_intermediate_size", 5}},
                    nlohmann::json{{"model_type", "dots1"}, {"n_routed_experts", 6}, {"n_shared_experts", 2}},
                    nlohmann::json{{"model_type", "olmoe"}, {"intermediate_size", 7}},
                    deepseek({{"model_type", "deepseek_v2"}, {"topk_method", "group_limited_greedy"}}),
                    deepseek({{"model_type", "deepseek_v3"}, {"first_k_dense_replace", 0}})));

// The last rank of a node of two sends a token with experts on all three ranks. Its own experts' rows it adds
// itself.
TEST(MoeRounding, CountsEveryPartialSumOfADispatcherOnce) {
  const ModelConfig config = layer_config({{"num_experts_per_tok", 6}});
  const Parameters parameters = random_parameters(config, 6);
  const MoeRows rows = {random_matrix(1, 10, 3), random_matrix(1, 10, 4), {2}};
  const auto error = [&](Dispatcher dispatcher) {
    const MoeRounding rounding =
        moe_rounding(config, parameters, DType::bf16, rows, layout(dispatcher), 2, Roundings::from_sums);
    return rounding.output[0][0].error;
  };
  // Two experts' rows each, from the neighbour and from the other node: the same partial sums.
  EXPECT_GT(error(Dispatcher::zero_redundancy), error(Dispatcher::alltoall));
  EXPECT_DOUBLE_EQ(error(Dispatcher::hierarchical), error(Dispatcher::zero_redundancy));
  EXPECT_DOUBLE_EQ(error(Dispatcher::hierarchical_dedup), error(Dispatcher::hierarchical));
  // From the other side the node of two makes one sum more of its two ranks'.
  MoeRows from_outside = rows;
  from_outside.ranks = {0};
  const auto outside = [&](Dispatcher dispatcher) {
    return moe_rounding(config, parameters, DType::bf16, from_outside, layout(dispatcher), 0,
                        Roundings::from_sums)
        .output[0][0]
        .error;
  };
  EXPECT_NE(outside(Dispatcher::hierarchical), outside(Dispatcher::zero_redundancy));
}

}  // namespace
}  // namespace expedite::reference
