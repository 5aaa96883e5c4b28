// Whole steps against the independent model in double precision: losses, everything between layers, and every
// gradient, for every expert-parallel size that the job's ranks allow.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/mpi/comparison.h"

namespace expedite::model::tests {
namespace {

// Rounding of fp32 through a few layers and sums over a few dozen terms.
constexpr double kF32Tolerance = 2e-5;
constexpr double kF32Margin = 1e-3;

/// A layer rounds to bf16 about 12 times on its way, and embedding, final norm and head count as another;
/// each is an error of up to u = 2^-9 of the value, independent of the others, so that sqrt(12 (L + 1)) u is
/// the deviation that is left. Gradients go the same way back, which doubles the roundings. The worst of a
/// tensor's few hundred elements is about four deviations out, and softmax and SiLU bend what goes through
/// them: six.
double bf16_tolerance(const ModelConfig& config) {
  return 6.0 * std::sqrt(2.0 * 12.0 * static_cast<double>(config.layers + 1)) * 0x1p-9;
}
constexpr double kBf16Margin = 0.05;

class ModelAgainstReference : public testing::TestWithParam<int> {};

TEST_P(ModelAgainstReference, AgreesInF32) {
  const comm::Communicator& world = job();
  Dice dice(static_cast<std::uint64_t>(100 * GetParam() + world.size()));
  const ModelConfig config = random_config(dice);
  SCOPED_TRACE(config.source.dump());
  const Problem problem =
      draw_problem(dice, config, static_cast<int>(dice.between(1, 3)), world.size(), kF32Margin, false);
  const Comparison comparison(problem, random_balance(dice), kF32Tolerance);
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
    Comparison(problem, {}, kF32Tolerance).run(DType::f32, grid_of(world.size()));
  }
}

class ModelInBf16 : public testing::TestWithParam<int> {};

TEST_P(ModelInBf16, AgreesWithinItsRounding) {
  const comm::Communicator& world = job();
  Dice dice(static_cast<std::uint64_t>(7000 + 100 * GetParam() + world.size()));
  const ModelConfig config = random_config(dice);
  SCOPED_TRACE(config.source.dump());
  const Problem problem = draw_problem(dice, config, 1, world.size(), kBf16Margin, true);
  const Comparison comparison(problem, random_balance(dice), bf16_tolerance(config));
  for (const int expert_parallel_size : divisors(world.size())) {
    comparison.run(DType::bf16, grid_of(expert_parallel_size));
  }
}

INSTANTIATE_TEST_SUITE_P(Random, ModelInBf16, testing::Range(0, 8));

}  // namespace
}  // namespace expedite::model::tests
