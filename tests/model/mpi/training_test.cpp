// Several steps of training: the same bits twice, the same weights on every rank, and the same losses for
// every layout.
#include <gtest/gtest.h>

#include <algorithm>

#include "expedite/comm/collectives.h"
#include "tests/model/mpi/rig.h"

namespace expedite::model::tests {
namespace {

constexpr std::size_t kSteps = 10;

Sequences random_sequences(Dice& dice, const ModelConfig& config, int count) {
  Sequences sequences(static_cast<std::size_t>(count));
  for (std::vector<int>& sequence : sequences) {
    for (std::int64_t length = dice.between(2, 9); length > 0; --length) {
      sequence.push_back(static_cast<int>(dice.between(0, config.vocab_size - 1)));
    }
  }
  return sequences;
}

StepOptions training_options(int step) {
  StepOptions options;
  options.balance = {.aux_loss = AuxLoss::sequence, .aux_coefficient = 0.01, .z_coefficient = 1e-3};
  options.clip_grad = 1.0;
  options.bias_update_rate = 1e-3;
  options.adamw.learning_rate = 3e-3F;
  options.adamw.step = step + 1;
  options.step = step + 1;
  return options;
}

/// The results of training on three batches in turn, however it is spread over ranks.
std::vector<StepResult> train(Rig& rig, int steps) {
  std::vector<StepResult> results;
  for (int step = 0; step < steps; ++step) {
    Dice dice(static_cast<std::uint64_t>(500 + step % 3));
    const TinyBatch batch(random_sequences(dice, rig.parameters().config(), 6), rig.grid().size());
    results.push_back(rig.step(batch, training_options(step), true));
  }
  return results;
}

ModelConfig training_config() {
  return tiny_config({{"mlp_only_layers", {0}},
                      {"num_hidden_layers", 3},
                      {"scoring_func", "sigmoid"},
                      {"moe_router_enable_expert_bias", true},
                      {"initializer_range", 0.2}});
}

/// Every byte of this rank's weights, masters and moments.
std::vector<std::byte> bytes_of(Parameters& parameters, bool dense_only) {
  std::vector<std::byte> all;
  for (const Bucket& bucket : parameters.buckets()) {
    for (const Parameter* parameter : bucket.parameters) {
      for (const TensorView& tensor :
           {parameter->weight, parameter->master, parameter->exp_avg, parameter->exp_avg_sq}) {
        if (!bucket.expert || !dense_only) {
          const auto* data = static_cast<const std::byte*>(tensor.data());
          all.insert(all.end(), data, data + tensor.bytes());
        }
      }
    }
  }
  for (std::int64_t layer = 0; layer < parameters.config().layers; ++layer) {
    const auto bias = std::as_bytes(std::span(parameters.layer(static_cast<int>(layer)).moe.selection_bias));
    all.insert(all.end(), bias.begin(), bias.end());
  }
  return all;
}

void expect_same_bytes(const comm::Communicator& group, const std::vector<std::byte>& mine) {
  std::vector<std::byte> expected = mine;
  comm::broadcast_bytes(group, expected, 0);
  EXPECT_TRUE(mine == expected) << "on rank " << group.rank() << " of group " << group.name();
}

class Training : public testing::TestWithParam<DType> {};

TEST_P(Training, GivesTheSameBitsTwiceAndOnEveryReplica) {
  const comm::Communicator& world = job();
  for (const int expert_parallel_size : divisors(world.size())) {
    SCOPED_TRACE(fmt::format("EP {}", expert_parallel_size));
    Rig first(training_config(), GetParam(), grid_of(expert_parallel_size));
    Rig second(training_config(), GetParam(), grid_of(expert_parallel_size));
    first.parameters().initialize(3);
    second.parameters().initialize(3);
    const std::vector<StepResult> losses = train(first, 5);
    const std::vector<StepResult> again = train(second, 5);
    for (std::size_t step = 0; step < losses.size(); ++step) {
      EXPECT_EQ(losses[step].loss, again[step].loss) << step;
      EXPECT_EQ(losses[step].aux_loss, again[step].aux_loss) << step;
      EXPECT_EQ(losses[step].gradient_norm, again[step].gradient_norm) << step;
    }
    EXPECT_TRUE(bytes_of(first.parameters(), false) == bytes_of(second.parameters(), false));
    expect_same_bytes(first.grid().world(), bytes_of(first.parameters(), true));
    expect_same_bytes(first.grid().expert_data_parallel(), bytes_of(first.parameters(), false));
  }
}

TEST_P(Training, HasTheSameLossesInEveryLayout) {
  const comm::Communicator& world = job();
  // fp32 sums in another order; or bf16 roundings that fall otherwise, each up to 2^-9, averaged over tokens.
  const double tolerance = GetParam() == DType::f32 ? 1e-5 : 2e-2;
  std::vector<double> expected(kSteps);
  const comm::ProcessGrid& alone = lone_grid();
  if (world.rank() == 0) {
    Rig single(training_config(), GetParam(), alone);
    single.parameters().initialize(5);
    const std::vector<StepResult> results = train(single, static_cast<int>(kSteps));
    std::transform(results.begin(), results.end(), expected.begin(),
                   [](const StepResult& result) { return result.loss; });
    EXPECT_LT(expected[9], expected[0]);  // of the same sequences
  }
  comm::broadcast(world, std::span(expected), 0);
  for (const int expert_parallel_size : divisors(world.size())) {
    Rig rig(training_config(), GetParam(), grid_of(expert_parallel_size));
    rig.parameters().initialize(5);
    const std::vector<StepResult> results = train(rig, static_cast<int>(kSteps));
    for (std::size_t step = 0; step < results.size(); ++step) {
      EXPECT_NEAR(results[step].loss, expected[step], tolerance * expected[step])
          << "step " << step << " with EP " << expert_parallel_size;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Training, testing::Values(DType::f32, DType::bf16),
                         [](const auto& param_info) { return std::string(name_of(param_info.param)); });

TEST(TrainingStep, MovesTheSelectionBiasTowardsIdleExpertsOncePerStep) {
  const comm::Communicator& world = job();
  Dice dice(21);
  const ModelConfig config = training_config();
  Rig rig(config, DType::f32, grid_of(world.size()));
  rig.parameters().initialize(6);
  const TinyBatch batch(dice, config, 3, world.size());
  StepOptions options = training_options(0);
  options.bias_update_rate = 0.25;  // exact in fp32
  const StepResult result = rig.step(batch, options, true);
  std::size_t moved = 0;
  std::size_t sparse = 0;
  for (int layer = 0; layer < static_cast<int>(config.layers); ++layer) {
    const std::vector<float>& bias = rig.parameters().layer(layer).moe.selection_bias;
    if (bias.empty()) {
      continue;
    }
    const std::vector<std::int64_t>& loads = result.expert_loads.at(sparse++);
    std::int64_t total = 0;
    for (const std::int64_t load : loads) {
      total += load;
    }
    EXPECT_EQ(total, batch.tokens() * config.experts_per_token);
    for (std::size_t e = 0; e < bias.size(); ++e) {
      const std::int64_t excess = loads[e] * config.experts - total;
      EXPECT_EQ(bias[e], excess > 0   ? -0.25F
                         : excess < 0 ? 0.25F
                                      : 0.0F)
          << "layer " << layer << " expert " << e;
      moved += excess != 0 ? 1 : 0;
    }
  }
  EXPECT_GT(moved, 0U);
}

TEST(TrainingStep, PassesOneRanksWishToStopToAll) {
  const comm::Communicator& world = job();
  const ModelConfig config = tiny_config();
  Rig rig(config, DType::f32, grid_of(world.size()));
  rig.parameters().initialize(7);
  const TinyBatch batch({{1, 2, 3}, {4, 5}}, world.size());
  StepOptions options = training_options(0);
  options.stop = world.rank() == world.size() - 1;
  EXPECT_TRUE(rig.step(batch, options, true).stop);
  options.stop = false;
  EXPECT_FALSE(rig.step(batch, options, true).stop);
}

TEST(TrainingStep, LeavesAllAsItIsWithoutTokens) {
  const comm::Communicator& world = job();
  Rig rig(tiny_config(), DType::f32, grid_of(world.size()));
  rig.parameters().initialize(8);
  const Tensors before = rig.gather(StateTensor::weight);
  StepOptions options = training_options(0);
  options.adamw.weight_decay = 0.0F;
  const StepResult result = rig.step(TinyBatch({{}, {}}, world.size()), options, true);
  EXPECT_EQ(result.loss, 0.0);
  EXPECT_EQ(result.gradient_norm, 0.0);
  EXPECT_EQ(rig.gather(StateTensor::weight), before);
}

TEST(Initialization, IsTheSameModelInEveryLayout) {
  const comm::Communicator& world = job();
  Rig single(training_config(), DType::bf16, lone_grid());
  single.parameters().initialize(9);
  const Tensors expected = single.gather(StateTensor::master);
  for (const int expert_parallel_size : divisors(world.size())) {
    Rig rig(training_config(), DType::bf16, grid_of(expert_parallel_size));
    rig.parameters().initialize(9);
    const Tensors weights = rig.gather(StateTensor::master);
    EXPECT_TRUE(world.rank() != 0 || weights == expected) << "EP " << expert_parallel_size;
  }
}

}  // namespace
}  // namespace expedite::model::tests
