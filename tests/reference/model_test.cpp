// What the reference does at the edges, by arithmetic that can be done by hand.
#include "tests/reference/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>

#include "tests/reference/attention.h"
#include "tests/reference/loss.h"
#include "tests/reference/rotary.h"
#include "tests/reference/router.h"
#include "tests/reference/separate_experts.h"
#include "tests/reference/swiglu.h"

namespace expedite::reference {
namespace {

ModelConfig tiny_config(const nlohmann::json& changes = nlohmann::json::object()) {
  nlohmann::json config = {{"model_type", "qwen3_moe"},
                           {"vocab_size", 11},
                           {"hidden_size", 6},
                           {"num_hidden_layers", 2},
                           {"num_attention_heads", 2},
                           {"num_key_value_heads", 1},
                           {"head_dim", 4},
                           {"num_experts", 4},
                           {"num_experts_per_tok", 2},
                           {"moe_intermediate_size", 3},
                           {"intermediate_size", 5},
                           {"norm_topk_prob", true}};
  config.update(changes);
  return architecture::parse_model_config(config, "test");
}

Matrix matrix(std::int64_t rows, std::int64_t columns, std::vector<double> values) {
  Matrix result(rows, columns);
  result.values = std::move(values);
  return result;
}

void expect_near(const Matrix& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.values.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(values.values[i], expected[i], 1e-12) << i;
  }
}

TEST(ReferenceRouter, GivesTiesToTheLowerExpert) {
  const Routing routing = route(matrix(2, 4, {1, 2, 2, 2, 0, 0, 0, 0}), {}, {.top_k = 2});
  EXPECT_EQ(routing.experts[0], (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(routing.experts[1], (std::vector<std::int64_t>{0, 1}));
  EXPECT_DOUBLE_EQ(routing.weights(0, 0), 0.5);
}

TEST(ReferenceRouter, UsesTheBiasForTheChoiceOnly) {
  const std::vector<double> bias = {0.0, 0.0, 10.0};
  const Routing routing = route(matrix(1, 3, {3, 2, 0}), bias,
                                {.top_k = 2, .sigmoid = true, .renormalize = false, .scaling_factor = 2.0});
  EXPECT_EQ(routing.experts[0], (std::vector<std::int64_t>{2, 0}));
  EXPECT_DOUBLE_EQ(routing.weights(0, 0), 2.0 * 0.5);
  EXPECT_DOUBLE_EQ(routing.weights(0, 1), 2.0 / (1.0 + std::exp(-3.0)));
}

TEST(ReferenceRouter, ChoosesFromTheBestGroups) {
  // Sums of the best two of each group of three: 5, 6, 5.5. Expert 0 is the best alone.
  const std::vector<double> scores = {4.0, 1.0, 0.0, 3.0, 2.0, 3.0, 2.5, 3.0, -1.0};
  RouterShape shape = {.top_k = 2, .groups = 3};
  const Preferences one = preferences(scores, {}, shape);
  EXPECT_EQ(one.values, (std::vector<double>{0.0, 0.0, 0.0, 3.0, 2.0, 3.0, 0.0, 0.0, 0.0}));
  EXPECT_EQ(one.group_margin, 0.5);
  shape.top_groups = 2;
  const std::vector<double> bias = {0.5, 0.5, 0.0, 0.0, -8.0, -8.0, -3.0, -3.5, 0.0};
  const Preferences two = preferences(scores, bias, shape);  // 6, -2 and -1
  EXPECT_EQ(two.values, (std::vector<double>{4.5, 1.5, 0.0, 0.0, 0.0, 0.0, -0.5, -0.5, -1.0}));
  EXPECT_EQ(two.group_margin, 1.0);
  shape.top_groups = 3;
  EXPECT_EQ(preferences(scores, {}, shape).values, scores);
}

TEST(ReferenceRouter, TakesExpertsOfOtherGroupsBeforeThoseBelowZero) {
  // sigmoid(0) - 1 is below 0 in the group that is chosen, the first of two equal ones.
  const std::vector<double> bias = {-1.0, -1.0, -1.0, -1.0};
  const Routing routing =
      route(Matrix(1, 4), bias, {.top_k = 2, .sigmoid = true, .renormalize = false, .groups = 2});
  EXPECT_EQ(routing.experts[0], (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(routing.weights(0, 0), 0.5);
}

TEST(ReferenceRouter, JudgesGroupsByTheirBest) {
  const std::vector<double> scores = {4.0, 1.0, 0.0, 3.5, 3.4, 3.0, 2.5, 3.75, -1.0};
  RouterShape shape = {.top_k = 2, .groups = 3, .top_groups = 2, .group_by_best = true};
  const double never = -std::numeric_limits<double>::infinity();
  const Preferences two = preferences(scores, {}, shape);
  EXPECT_EQ(two.values, (std::vector<double>{4.0, 1.0, 0.0, never, never, never, 2.5, 3.75, -1.0}));
  EXPECT_EQ(two.group_margin, 0.25);
  shape.groups = 9;  // of one expert each
  shape.top_groups = 3;
  EXPECT_EQ(preferences(scores, {}, shape).values,
            (std::vector<double>{4.0, never, never, 3.5, never, never, never, 3.75, never}));
}

TEST(ReferenceRouter, NeverTakesExpertsOfOtherGroupsWhereTheirBestDecides) {
  const std::vector<double> bias = {-1.0, -1.0, -1.0, -1.0};
  const Routing routing = route(Matrix(1, 4), bias, {.top_k = 2, .groups = 2, .group_by_best = true});
  EXPECT_EQ(routing.experts[0], (std::vector<std::int64_t>{0, 1}));
}

TEST(ReferenceRotary, TurnsNeighboursOrHalvesOfAPart) {
  const Matrix x = matrix(2, 6, {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6});
  const std::vector<std::int64_t> positions = {0, 1};
  Rotary rotary = {
      .inverse_frequencies = {std::numbers::pi / 2, std::numbers::pi}, .head_dim = 6, .first = 2};
  expect_near(rotate(x, positions, rotary), {1, 2, 3, 4, 5, 6, 1, 2, -5, -4, 3, -6});
  rotary.neighbours = true;
  expect_near(rotate(x, positions, rotary), {1, 2, 3, 4, 5, 6, 1, 2, -4, 3, -5, -6});
  rotary.attention_factor = 2.0;
  expect_near(rotate_backward(rotate(x, positions, rotary), positions, rotary),
              {1, 2, 12, 16, 20, 24, 1, 2, 12, 16, 20, 24});
}

TEST(ReferenceSwiglu, Clamps) {
  const std::vector<double> one = {1.0};
  const std::vector<double> two = {2.0};
  const std::vector<double> half = {0.5};
  const SwigluWeights weights = {.gate = two,
                                 .up = one,
                                 .down = two,
                                 .gate_bias = one,
                                 .up_bias = half,
                                 .down_bias = half,
                                 .clamp = Clamp{.alpha = 1.5, .limit = 2.0}};
  const auto outcome = [](double gate, double up) {
    return 2.0 * gate / (1.0 + std::exp(-1.5 * gate)) * (up + 1.0) + 0.5;
  };
  // Gates of 3, 1 and -7, ups of 1.5, 0.5 and -3.5.
  expect_near(swiglu(matrix(3, 1, {1, 0, -4}), weights), {outcome(2, 1.5), outcome(1, 0.5), outcome(-7, -2)});
}

TEST(ReferenceExperts, AreSeparatedAndFused) {
  const ModelConfig config = tiny_config({{"model_type", "gpt_oss"},
                                          {"hidden_size", 2},
                                          {"num_experts_per_tok", 1},
                                          {"num_hidden_layers", 1},
                                          {"num_local_experts", 1},
                                          {"num_experts", nullptr},
                                          {"intermediate_size", 2}});
  const std::string experts = "model.layers.0.mlp.experts";
  Parameters fused = random_parameters(config, 8);
  fused.at(experts + ".gate_up_proj") = {0, 1, 2, 3, 4, 5, 6, 7};  // for each input: gate, up, gate, up
  fused.at(experts + ".gate_up_proj_bias") = {0, 1, 2, 3};
  fused.at(experts + ".down_proj") = {0, 1, 2, 3};
  fused.at(experts + ".down_proj_bias") = {8, 9};
  const Parameters separate = separate_experts(config, fused);
  const auto of_expert = [&](const char* name) { return separate.at(experts + ".0." + name); };
  EXPECT_EQ(of_expert("gate_proj.weight"), (std::vector<double>{0, 4, 2, 6}));
  EXPECT_EQ(of_expert("up_proj.weight"), (std::vector<double>{1, 5, 3, 7}));
  EXPECT_EQ(of_expert("down_proj.weight"), (std::vector<double>{0, 2, 1, 3}));
  EXPECT_EQ(of_expert("gate_proj.bias"), (std::vector<double>{0, 2}));
  EXPECT_EQ(of_expert("up_proj.bias"), (std::vector<double>{1, 3}));
  EXPECT_EQ(of_expert("down_proj.bias"), (std::vector<double>{8, 9}));
  EXPECT_EQ(fuse_experts(config, separate), fused);
}

TEST(ReferenceAttention, SeesItselfAndTheWindowBefore) {
  // Equal keys: the result is the mean of the values that are seen.
  const Matrix q = matrix(4, 1, {1, 1, 1, 1});
  const Matrix v = matrix(4, 1, {1, 2, 4, 8});
  const std::vector<std::int64_t> bounds = {0, 3, 3, 4};
  expect_near(attention(q, q, v, bounds, {}), {1, 1.5, 7.0 / 3, 8});
  expect_near(attention(q, q, v, bounds, {.window = 2}), {1, 1.5, 3, 8});
  // A sink of the same score takes the part of one more key.
  const std::vector<double> sinks = {1.0};
  expect_near(attention(q, q, v, bounds, {}, sinks), {0.5, 1, 7.0 / 4, 4});
  expect_near(attention(q, q, v, bounds, {.window = 2}, sinks), {0.5, 1, 2, 4});
}

TEST(ReferenceAttention, HasValuesOfAnotherSizeAndAScale) {
  const Matrix q = matrix(2, 2, {0, 0, 1, 2});
  const Matrix k = matrix(2, 2, {0, 0, 1, 1});
  const Matrix v = matrix(2, 3, {0, 1, 2, 3, 4, 5});
  const std::vector<std::int64_t> bounds = {0, 2};
  const double share = 1.0 / (1.0 + std::exp(-3.0 * 0.5));  // of the second key
  expect_near(attention(q, k, v, bounds, {.head_dim = 2, .value_dim = 3, .scale = 0.5}),
              {0, 1, 2, 3 * share, 1 + 3 * share, 2 + 3 * share});
}

TEST(ReferenceLosses, BalancedRoutingCostsTopK) {
  // Uniform scores and equal counts: E * sum of (k / E) * (1 / E) = k.
  const Routing routing = route(Matrix(4, 4), {}, {.top_k = 2});
  EXPECT_NEAR(load_balance_loss({&routing}, {.top_k = 2}).loss, 2.0, 1e-12);
  EXPECT_NEAR(z_loss({&routing}).loss, std::log(4.0) * std::log(4.0), 1e-12);
}

TEST(ReferenceLosses, OneSequenceBalancesAsTheBatch) {
  const ModelConfig config = tiny_config({{"num_hidden_layers", 1}});
  const Parameters parameters = random_parameters(config, 3);
  const Result one = run(config, parameters, {{1, 2, 3, 4}}, Options::forward_only());
  EXPECT_NEAR(one.sequence_aux_loss, one.aux_loss, 1e-12);
  const Result two = run(config, parameters, {{1, 2, 3, 4}, {5, 6}}, Options::forward_only());
  const Result other = run(config, parameters, {{5, 6}}, Options::forward_only());
  EXPECT_NEAR(two.sequence_aux_loss, (4 * one.aux_loss + 2 * other.aux_loss) / 6, 1e-12);
}

TEST(ReferenceModel, SequencesDoNotSeeEachOther) {
  const ModelConfig config = tiny_config();
  const Parameters parameters = random_parameters(config, 4);
  const Result alone = run(config, parameters, {{7, 8, 9}}, Options::forward_only());
  const Result packed = run(config, parameters, {{1, 2}, {7, 8, 9}, {}}, Options::forward_only());
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t v = 0; v < 11; ++v) {
      EXPECT_NEAR(packed.logits(2 + t, v), alone.logits(t, v), 1e-12);
    }
  }
}

ModelConfig latent_config() {
  return tiny_config({{"model_type", "deepseek_v3"},
                      {"num_key_value_heads", 2},
                      {"num_experts", nullptr},
                      {"n_routed_experts", 4},
                      {"n_group", 2},
                      {"topk_group", 1},
                      {"q_lora_rank", 3},
                      {"kv_lora_rank", 3},
                      {"qk_nope_head_dim", 3},
                      {"qk_rope_head_dim", 4},
                      {"v_head_dim", 5},
                      {"head_dim", nullptr}});
}

// Rotation is linear.
TEST(ReferenceModel, ScalesAttentionAsTheConfigurationSays) {
  const auto expect_scale = [](ModelConfig config, const std::string& projection) {
    Parameters parameters = random_parameters(config, 9);
    config.attention_scale *= 2.0F;
    const Result scaled = run(config, parameters, {{1, 2, 3, 4}}, Options::forward_only());
    config.attention_scale /= 2.0F;
    const Result plain = run(config, parameters, {{1, 2, 3, 4}}, Options::forward_only());
    EXPECT_GT(std::abs(scaled.loss - plain.loss), 1e-4);
    for (auto& [name, values] : parameters) {
      if (name.ends_with(projection)) {
        std::ranges::for_each(values, [](double& value) { value *= 2.0; });
      }
    }
    const Result larger = run(config, parameters, {{1, 2, 3, 4}}, Options::forward_only());
    expect_near(larger.logits, scaled.logits.values);
  };
  expect_scale(tiny_config({{"model_type", "mixtral"}}), "q_proj.weight");
  expect_scale(latent_config(), "q_b_proj.weight");
}

TEST(ReferenceModel, NormalisesWhatIsCompressedWithAnEpsilonOfItsOwn) {
  ModelConfig config = latent_config();
  const Parameters parameters = random_parameters(config, 10);
  const Result usual = run(config, parameters, {{1, 2, 3, 4}}, Options::forward_only());
  config.latent_norm_eps = 0.1F;
  const Result other = run(config, parameters, {{1, 2, 3, 4}}, Options::forward_only());
  EXPECT_GT(std::abs(other.loss - usual.loss), 1e-5);
}

TEST(ReferenceModel, WorksWithoutTokensAndWithoutTargets) {
  const ModelConfig config = tiny_config();
  const Parameters parameters = random_parameters(config, 5);
  const Result empty = run(config, parameters, {}, {true, true, true, true});
  EXPECT_EQ(empty.loss, 0.0);
  EXPECT_EQ(empty.aux_loss, 0.0);
  const Result single = run(config, parameters, {{3}});
  EXPECT_EQ(single.loss, 0.0);
  EXPECT_GT(single.aux_loss, 0.0);
  EXPECT_EQ(single.grads.at("lm_head.weight"), std::vector<double>(11 * 6, 0.0));
}

TEST(ReferenceModel, WorksWithoutExperts) {
  const ModelConfig config = tiny_config({{"num_experts", 0}});
  const Result result = run(config, random_parameters(config, 6), {{1, 2, 3}}, {true, true, true, true});
  EXPECT_GT(result.loss, 0.0);
  EXPECT_EQ(result.aux_loss, 0.0);
  EXPECT_TRUE(result.router_logits[0].values.empty());
  EXPECT_TRUE(result.tokens_per_expert[0].empty());
}

TEST(ReferenceModel, CountsTokensPerExpert) {
  const ModelConfig config = tiny_config();
  const Result result = run(config, random_parameters(config, 7), {{1, 2, 3}}, Options::forward_only());
  std::int64_t assignments = 0;
  for (const std::int64_t count : result.tokens_per_expert[1]) {
    assignments += count;
  }
  EXPECT_EQ(assignments, 3 * 2);
}

}  // namespace
}  // namespace expedite::reference
