// Routing at its edges: experts without tokens, ties, more ranks than experts, logits that are not numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "expedite/hf/names.h"
#include "tests/error_text.h"
#include "tests/model/mpi/rig.h"

namespace expedite::model::tests {
namespace {

/// Gradients of one step of `rig` against the reference's, on rank 0.
void expect_reference(Rig& rig, const reference::Parameters& weights, const TinyBatch& batch) {
  const BalanceOptions balance = {.aux_loss = AuxLoss::batch, .aux_coefficient = 0.1, .z_coefficient = 0.1};
  rig.set_weights(weights);
  const StepResult result = rig.step(batch, {.balance = balance}, false);
  const Expected expected = expected_step(rig.parameters().config(), weights, batch, balance);
  EXPECT_EQ(result.expert_loads, expected.expert_loads);
  EXPECT_NEAR(result.loss, expected.loss, 1e-5 * expected.loss);
  EXPECT_NEAR(result.aux_loss, expected.aux_loss, 1e-5 * expected.aux_loss);
  double largest = 0.0;
  for (const auto& [name, gradient] : expected.gradients) {
    for (const double value : gradient) {
      largest = std::max(largest, std::abs(value));
    }
  }
  for (const auto& [name, gradient] : rig.gather(StateTensor::gradient)) {
    EXPECT_LE(relative_error(gradient, expected.gradients.at(name), 0.1 * largest), 1e-5) << name;
  }
}

const Sequences kSequences = {{1, 2, 3, 4, 5}, {6, 7}, {8}, {9, 10, 11, 12}, {}, {13, 14, 15}};

TEST(Routing, LeavesTheWeightsOfAnExpertWithoutTokensAlone) {
  const comm::Communicator& world = job();
  const ModelConfig config = tiny_config(
      {{"scoring_func", "sigmoid"}, {"moe_router_enable_expert_bias", true}, {"num_hidden_layers", 1}});
  reference::Parameters weights = reference::random_parameters(config, 41, 0.25);
  const hf::ParameterNames names(config.family);
  weights.at(names.selection_bias(0)) = {5.0, -9.0, 5.0, -9.0, -9.0};  // everybody chooses 0 and 2
  const TinyBatch batch(kSequences, world.size());
  for (const int expert_parallel_size : divisors(world.size())) {
    Rig rig(config, DType::f32, grid_of(expert_parallel_size));
    expect_reference(rig, weights, batch);
    const Tensors gradients = rig.gather(StateTensor::gradient);
    if (world.rank() == 0) {
      for (const std::int64_t expert : {1, 3, 4}) {
        const std::vector<float>& gradient = gradients.at(names.expert_up(0, expert));
        EXPECT_EQ(gradient, std::vector<float>(gradient.size(), 0.0F));
      }
    }
  }
}

TEST(Routing, GivesTiesToTheLowerExpertInEveryLayout) {
  const comm::Communicator& world = job();
  const ModelConfig config = tiny_config();
  const hf::ParameterNames names(config.family);
  reference::Parameters weights = reference::random_parameters(config, 42, 0.25);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    std::vector<double>& router = weights.at(names.router(layer));
    std::fill(router.begin(), router.end(), 0.0);
  }
  const TinyBatch batch(kSequences, world.size());
  for (const int expert_parallel_size : divisors(world.size())) {
    Rig rig(config, DType::f32, grid_of(expert_parallel_size));
    expect_reference(rig, weights, batch);
    const StepResult result = rig.evaluate(batch);
    const std::int64_t tokens = batch.tokens();
    EXPECT_EQ(result.expert_loads[1], (std::vector<std::int64_t>{tokens, tokens, 0, 0, 0}));
  }
}

TEST(Routing, WorksWithMoreRanksThanExperts) {
  const comm::Communicator& world = job();
  for (const int experts : {1, 2, 3}) {
    const ModelConfig config = tiny_config({{"num_experts", experts}, {"num_experts_per_tok", 1}});
    Rig rig(config, DType::f32, grid_of(world.size()));
    expect_reference(rig, reference::random_parameters(config, 43, 0.25),
                     TinyBatch(kSequences, world.size()));
  }
}

class BadLogits : public testing::TestWithParam<float> {};

// On ranks of their own: what others do when one fails is a test of whole jobs (see model_failures.cpp).
TEST_P(BadLogits, AreAnErrorThatNamesLayerAndStep) {
  const ModelConfig config = tiny_config();
  Rig rig(config, DType::f32, lone_grid());
  rig.parameters().initialize(44);
  const TinyBatch batch({{1, 2, 3}, {4, 5}}, 1);
  const StepResult before = rig.step(batch, {.step = 16}, false);
  rig.parameters().zero_gradients();
  float& weight = rig.parameters().layer(1).moe.router->weight.as<float>()[0];
  const float good = std::exchange(weight, GetParam());
  const std::string error = error_text([&] { rig.step(batch, {.step = 17}, true); });
  EXPECT_TRUE(mentions(error, {"step 17", "L1 mb0 router forward", "router logit", "diverged"}));
  // The engine is none the worse for it.
  weight = good;
  rig.parameters().zero_gradients();
  EXPECT_EQ(rig.step(batch, {.step = 18}, false).loss, before.loss);
}

INSTANTIATE_TEST_SUITE_P(Values, BadLogits,
                         testing::Values(std::numeric_limits<float>::quiet_NaN(),
                                         std::numeric_limits<float>::infinity(),
                                         -std::numeric_limits<float>::infinity()));

TEST(Routing, RefusesTokensOutsideTheVocabulary) {
  Rig rig(tiny_config(), DType::f32, lone_grid());
  rig.parameters().initialize(45);
  for (const int token : {-1, 31}) {
    const std::string error = error_text([&] { rig.step(TinyBatch({{1, 2, token, 3}}, 1), {}, false); });
    EXPECT_TRUE(mentions(error, {"mb0 embedding forward", fmt::format("token 2 is {}", token), "31"}));
  }
}

// A gradient that is not finite must not reach the weights.
TEST(Divergence, LeavesTheWeightsOfTheStepBefore) {
  Rig rig(tiny_config(), DType::f32, lone_grid());
  rig.parameters().initialize(46);
  const Tensors before = rig.gather(StateTensor::weight);
  const StepOptions options = {.loss_scale = std::numeric_limits<double>::infinity(), .step = 3};
  const std::string error = error_text([&] { rig.step(TinyBatch({{1, 2, 3}}, 1), options, true); });
  EXPECT_TRUE(mentions(error, {"step 3", "gradient norm", "diverged"}));
  EXPECT_EQ(rig.gather(StateTensor::weight), before);
}

}  // namespace
}  // namespace expedite::model::tests
