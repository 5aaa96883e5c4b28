// Whole steps against the independent model in double precision: losses, everything between layers, and every
// gradient, for every expert-parallel size that the job's ranks allow.
#include <gtest/gtest.h>

#include "tests/model/mpi/comparison.h"

namespace expedite::model::tests {
namespace {

// Rounding must not send a token to another expert.
constexpr double kF32Margin = 2.5e-3;
constexpr double kBf16Margin = 0.12;

class ModelAgainstReference : public testing::TestWithParam<int> {};

TEST_P(ModelAgainstReference, AgreesInF32) {
  const comm::Communicator& world = job();
  Dice dice(static_cast<std::uint64_t>(100 * GetParam() + world.size()));
  const ModelConfig config = random_config(dice);
  SCOPED_TRACE(config.source);
  const Problem problem =
      draw_problem(dice, config, static_cast<int>(dice.between(1, 3)), world.size(), kF32Margin, false);
  Comparison comparison(problem, random_balance(dice));
  for (const int expert_parallel_size : divisors(world.size())) {
    comparison.run(DType::f32, grid_of(expert_parallel_size));
  }
}

INSTANTIATE_TEST_SUITE_P(Random, ModelAgainstReference, testing::Range(0, 16));

// Heads that turn in part, and biases on queries, keys and values alone. Every layer is dense.
TEST(DenseGlm4Moe, AgreesInF32) {
  const comm::Communicator& world = job();
  for (const bool qk_norm : {false, true}) {
    Dice dice(static_cast<std::uint64_t>(11 + world.size()));
    const ModelConfig config = tiny_config({{"model_type", "glm4_moe"},
                                            {"n_routed_experts", 4},
                                            {"first_k_dense_replace", 2},
                                            {"attention_bias", true},
                                            {"use_qk_norm", qk_norm},
                                            {"partial_rotary_factor", 0.5}});
    const Problem problem = draw_problem(dice, config, 2, world.size(), kF32Margin, false);
    Comparison(problem, {}).run(DType::f32, grid_of(world.size()));
  }
}

class ModelInBf16 : public testing::TestWithParam<int> {};

TEST_P(ModelInBf16, AgreesWithinItsRounding) {
  const comm::Communicator& world = job();
  Dice dice(static_cast<std::uint64_t>(7000 + 100 * GetParam() + world.size()));
  const ModelConfig config = random_config(dice);
  SCOPED_TRACE(config.source);
  const Problem problem = draw_problem(dice, config, 1, world.size(), kBf16Margin, true);
  Comparison comparison(problem, random_balance(dice));
  for (const int expert_parallel_size : divisors(world.size())) {
    comparison.run(DType::bf16, grid_of(expert_parallel_size));
  }
}

INSTANTIATE_TEST_SUITE_P(Random, ModelInBf16, testing::Range(0, 8));

}  // namespace
}  // namespace expedite::model::tests
