// Whole steps against the independent model in double precision: losses, everything between layers, and every
// gradient, for every expert-parallel size that the job's ranks allow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/model/mpi/rig.h"

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

double largest(std::span<const double> values) {
  double result = 0.0;
  for (const double value : values) {
    result = std::max(result, std::abs(value));
  }
  return result;
}

class Comparison {
 public:
  Comparison(const Problem& problem, const BalanceOptions& balance, double tolerance)
      : problem_(problem),
        balance_(balance),
        tolerance_(tolerance),
        expected_(expected_step(problem.config, problem.weights, problem.batch, balance)) {
    for (const auto& [name, gradient] : expected_.gradients) {
      largest_gradient_ = std::max(largest_gradient_, largest(gradient));
    }
  }

  /// Runs the step in one layout and compares all of it.
  void run(DType dtype, int expert_parallel_size) const {
    SCOPED_TRACE(fmt::format("EP {}", expert_parallel_size));
    Rig rig(problem_.config, dtype, grid_of(expert_parallel_size), State::gradients);
    rig.set_weights(problem_.weights);
    Observed observed;
    rig.engine().set_observer(observed.observer());
    const StepResult result = rig.step(problem_.batch, {.balance = balance_}, false);
    rig.engine().set_observer(nullptr);
    compare_result(result);
    compare_observed(observed, rig.grid().rank());
    for (const auto& [name, gradient] : rig.gather(StateTensor::gradient)) {
      EXPECT_LE(relative_error(gradient, expected_.gradients.at(name), noise_of(name)), tolerance_)
          << "gradient of " << name;
    }
    if (expert_parallel_size == rig.grid().size()) {  // without backward: the same kernels, the same bits
      EXPECT_EQ(rig.evaluate(problem_.batch).loss, result.loss);
    }
  }

 private:
  /// What a gradient's error is held against where the gradient itself is small. One a thousandth of the
  /// largest holds little but the rounding of others; a router's is made of dot products of rows that may
  /// cancel; those of queries and keys are differences of numbers as large as the gradient of the values, and
  /// vanish where a token sees only itself.
  [[nodiscard]] double noise_of(const std::string& name) const {
    const std::size_t attention = name.find("self_attn.");
    if (attention != std::string::npos) {
      const std::string values = name.substr(0, attention) + "self_attn.v_proj.weight";
      return std::max(1e-3 * largest_gradient_, 0.25 * largest(expected_.gradients.at(values)));
    }
    return (name.ends_with(".gate.weight") ? 0.1 : 1e-3) * largest_gradient_;
  }

  void compare_result(const StepResult& result) const {
    EXPECT_NEAR(result.loss, expected_.loss, tolerance_ * expected_.loss);
    EXPECT_NEAR(result.aux_loss, expected_.aux_loss, tolerance_ * expected_.aux_loss);
    EXPECT_NEAR(result.z_loss, expected_.z_loss, 2 * tolerance_ * expected_.z_loss);
    EXPECT_EQ(result.expert_loads, expected_.expert_loads);
    EXPECT_EQ(result.targets, problem_.batch.targets());
    double squares = 0.0;
    for (const auto& [name, gradient] : expected_.gradients) {
      for (const double value : gradient) {
        squares += value * value;
      }
    }
    EXPECT_NEAR(result.gradient_norm, std::sqrt(squares), tolerance_ * std::sqrt(squares));
  }

  void compare_observed(const Observed& observed, int rank) const {
    std::size_t compared = 0;
    for (int i = 0; i < problem_.batch.micro_batches(); ++i) {
      const reference::Result& expected = expected_.micro_batches[static_cast<std::size_t>(i)];
      const auto compare = [&](const std::string& name, const reference::Matrix& all) {
        const auto entry = observed.values().find({name, i});
        ASSERT_NE(entry, observed.values().end()) << name;
        const auto begin = problem_.batch.tokens_before(i, rank) * all.columns;
        const auto end = problem_.batch.tokens_before(i, rank + 1) * all.columns;
        const auto mine =
            std::span(all.values)
                .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
        EXPECT_LE(relative_error(entry->second, mine, largest(all.values)), tolerance_)
            << name << " of micro-batch " << i;
        ++compared;
      };
      for (std::size_t layer = 0; layer < expected.hidden_states.size(); ++layer) {
        compare(fmt::format("hidden_states.{}", layer), expected.hidden_states[layer]);
        if (problem_.config.sparse[layer]) {
          compare(fmt::format("router_logits.{}", layer), expected.router_logits[layer]);
        }
      }
      compare("final_hidden_state", expected.final_hidden_state);
      compare("logits", expected.logits);
    }
    EXPECT_EQ(compared, observed.values().size());
  }

  const Problem& problem_;
  BalanceOptions balance_;
  double tolerance_;
  Expected expected_;
  double largest_gradient_ = 0.0;
};

BalanceOptions random_balance(Dice& dice) {
  return {.aux_loss = static_cast<AuxLoss>(dice.between(0, 2)),
          .aux_coefficient = 0.3,
          .z_coefficient = dice.flip() ? 0.1 : 0.0};
}

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
    comparison.run(DType::f32, expert_parallel_size);
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
    Comparison(problem, {}, kF32Tolerance).run(DType::f32, world.size());
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
    comparison.run(DType::bf16, expert_parallel_size);
  }
}

INSTANTIATE_TEST_SUITE_P(Random, ModelInBf16, testing::Range(0, 8));

}  // namespace
}  // namespace expedite::model::tests
