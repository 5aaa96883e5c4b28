// One MoE layer under every dispatcher, pipeline and number of chunks, in bf16 and f32: how far it is from
// exact arithmetic, and dispatchers from each other, element by element within what rounding can do.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "expedite/base/random.h"
#include "expedite/comm/collectives.h"
#include "expedite/kernels/bf16_products.h"
#include "tests/model/mpi/rig.h"
#include "tests/reference/moe_rounding.h"

namespace expedite::model::tests {
namespace {

using reference::BoundedRow;
using reference::MoeRounding;
using reference::MoeRows;
using reference::Roundings;
using schedule::ChunkPipeline;
using schedule::Dispatcher;
using schedule::EpPlan;

double to_bf16(double value) {
  return static_cast<double>(static_cast<float>(bf16(static_cast<float>(value))));
}

/// One sparse layer, with a shared expert of either kind or none. In a crowded one every token goes to
/// several experts of each of `ranks` ranks.
ModelConfig random_layer(Dice& dice, int ranks, bool crowded) {
  const std::int64_t experts = crowded ? 3 * ranks : dice.between(1, 9);
  nlohmann::json config = {{"hidden_size", dice.between(16, 40)},
                           {"num_hidden_layers", 1},
                           {"num_experts", experts},
                           {"num_experts_per_tok", crowded ? experts : dice.between(1, experts)},
                           {"moe_intermediate_size", dice.between(1, 24)},
                           {"norm_topk_prob", dice.flip()},
                           {"scoring_func", dice.flip() ? "sigmoid" : "softmax"}};
  switch (dice.between(0, 2)) {
    case 1:
      config.update({{"model_type", "qwen2_moe"}, {"shared_expert_intermediate_size", dice.between(1, 24)}});
      break;
    case 2:
      config.update({{"model_type", "dots1"},
                     {"n_routed_experts", experts},
                     {"n_shared_experts", dice.between(0, 2)},
                     {"scoring_func", "sigmoid"}});
      break;
    default:
      break;
  }
  return tiny_config(config);
}

/// Weights and rows that are exact in bf16. No rounding can send a token to other experts.
struct LayerProblem {
  ModelConfig config;
  reference::Parameters weights;
  MoeRows rows;
  std::vector<std::int64_t> tokens;  // of each rank
};

LayerProblem draw_layer(Dice& dice, int ranks, bool crowded) {
  LayerProblem problem{.config = random_layer(dice, ranks, crowded), .weights = {}, .rows = {}, .tokens = {}};
  problem.weights = reference::random_parameters(
      problem.config, static_cast<std::uint64_t>(dice.between(0, 1'000'000)), 0.25);
  for (auto& [name, values] : problem.weights) {
    std::ranges::transform(values, values.begin(), to_bf16);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    problem.tokens.push_back(!crowded && dice.between(0, 2) == 0 ? dice.between(0, 1) : dice.between(2, 8));
    problem.rows.ranks.insert(problem.rows.ranks.end(), static_cast<std::size_t>(problem.tokens.back()),
                              rank);
  }
  const auto count = std::ssize(problem.rows.ranks);
  const std::int64_t hidden = problem.config.hidden_size;
  problem.rows.input = reference::Matrix(count, hidden);
  problem.rows.grad_output = reference::Matrix(count, hidden);
  const Philox random(static_cast<std::uint64_t>(dice.between(0, 1'000'000)), 0);
  std::int64_t next = 0;
  const auto draw = [&](std::span<double> row) {
    std::ranges::generate(row, [&] { return to_bf16(random.normal(next++)); });
  };
  for (std::int64_t t = 0; t < count; ++t) {
    draw(problem.rows.grad_output.row(t));
    do {
      draw(problem.rows.input.row(t));
    } while (
        !reference::chooses_clearly(problem.config, problem.weights, DType::bf16, problem.rows.input.row(t)));
  }
  return problem;
}

/// The errors of all elements, each over its bound.
class Errors {
 public:
  void add(std::span<const float> ours, const BoundedRow& expected, const std::string& what) {
    ASSERT_EQ(ours.size(), expected.size()) << what;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      add(std::abs(static_cast<double>(ours[i]) - expected[i].value), expected[i].error, what, i);
    }
  }
  void add(double error, double bound, const std::string& what, std::size_t index) {
    EXPECT_LE(error, bound) << what << " " << index;
    largest_ = std::max(largest_, error > 0.0 ? error / bound : 0.0);
  }
  [[nodiscard]] double largest() const { return largest_; }

 private:
  double largest_ = 0.0;
};

/// A type, and how it is multiplied.
struct Numbers {
  const char* name;
  DType type;
  kernels::Bf16Products products = kernels::Bf16Products::automatic;
};

class LayerInRoundings : public testing::TestWithParam<Numbers> {
 protected:
  void SetUp() override {
    if (GetParam().products == kernels::Bf16Products::native && !kernels::bf16_cpu().native) {
      GTEST_SKIP() << "runs where oneDNN has bf16 products: on CPUs with AVX-512";
    }
    kernels::set_bf16_products(GetParam().products);
    for (const int per_node : {1, job().size(), std::max(1, job().size() / 2)}) {
      std::vector<int> node_of;
      for (int rank = 0; rank < job().size(); ++rank) {
        node_of.push_back(rank / per_node);
      }
      grids_.emplace_back(job(), job().size(), node_of);
    }
  }

  void TearDown() override { kernels::set_bf16_products(kernels::Bf16Products::automatic); }

  /// Every plan of a dispatcher on one grid, and what all of them make.
  Rig::LayerResult run_plans(const LayerProblem& problem, const comm::ProcessGrid& grid,
                             Dispatcher dispatcher, Dice& dice);
  void compare_dispatchers(const LayerProblem& problem, const comm::ProcessGrid& grid,
                           const std::map<Dispatcher, Rig::LayerResult>& results);

  [[nodiscard]] moe::ExpertLayout layout(const LayerProblem& problem, const comm::ProcessGrid& grid,
                                         Dispatcher dispatcher) const {
    std::vector<int> node_of;
    for (int rank = 0; rank < grid.size(); ++rank) {
      node_of.push_back(grid.node_of(rank));
    }
    return {expert_shard(problem.config, grid).first_expert, node_of, grid.rank(), dispatcher};
  }
  [[nodiscard]] MoeRounding bounds(const LayerProblem& problem, const comm::ProcessGrid& grid,
                                   Dispatcher dispatcher, Roundings roundings) const {
    return moe_rounding(problem.config, problem.weights, GetParam().type, problem.rows,
                        layout(problem, grid, dispatcher), grid.rank(), roundings);
  }
  /// How near errors came to their bounds on any rank. Collective.
  void report() const;
  /// Those of this rank's tokens.
  [[nodiscard]] static BoundedRow mine(const LayerProblem& problem, const std::vector<BoundedRow>& rows) {
    BoundedRow result;
    for (std::size_t t = 0; t < rows.size(); ++t) {
      if (problem.rows.ranks[t] == job().rank()) {
        result.insert(result.end(), rows[t].begin(), rows[t].end());
      }
    }
    return result;
  }
  [[nodiscard]] static std::vector<double> mine(const LayerProblem& problem, const reference::Matrix& rows) {
    std::vector<double> result;
    for (std::int64_t t = 0; t < rows.rows; ++t) {
      if (problem.rows.ranks[static_cast<std::size_t>(t)] == job().rank()) {
        result.insert(result.end(), rows.row(t).begin(), rows.row(t).end());
      }
    }
    return result;
  }

  std::vector<comm::ProcessGrid> grids_;
  Errors output_errors_;
  Errors grad_input_errors_;
  Errors weight_errors_;
  Errors output_differences_;
  Errors grad_input_differences_;
};

Rig::LayerResult LayerInRoundings::run_plans(const LayerProblem& problem, const comm::ProcessGrid& grid,
                                             Dispatcher dispatcher, Dice& dice) {
  const MoeRounding expected = bounds(problem, grid, dispatcher, Roundings::all);
  const std::vector<double> input = mine(problem, problem.rows.input);
  const std::vector<double> grad_output = mine(problem, problem.rows.grad_output);
  std::optional<Rig::LayerResult> first;
  for (const ChunkPipeline pipeline :
       {ChunkPipeline::continuous, ChunkPipeline::pairwise, ChunkPipeline::none}) {
    const EpPlan plan = {
        .dispatcher = dispatcher,
        .chunking = {.chunks = first ? static_cast<int>(dice.between(2, 6)) : 1, .tapered = dice.flip()},
        .pipeline = pipeline,
        .window = static_cast<int>(dice.between(1, 3)),
        .recompute = static_cast<schedule::MoeRecompute>(dice.between(0, 2))};
    SCOPED_TRACE(fmt::format("{} {} N={} window {} recompute {} nodes {}", name_of(dispatcher),
                             name_of(pipeline), plan.chunking.chunks, plan.window, name_of(plan.recompute),
                             grid.nodes()));
    Rig rig(problem.config, GetParam().type, grid, State::gradients, plan);
    rig.set_weights(problem.weights);
    Rig::LayerResult result = rig.run_layer(input, grad_output, std::ranges::max(problem.tokens));
    output_errors_.add(result.output, mine(problem, expected.output), "output");
    grad_input_errors_.add(result.grad_input, mine(problem, expected.grad_input), "gradient of the input");
    for (const auto& [name, gradient] : rig.gradients()) {
      if (const auto bounds = expected.gradients.find(name); bounds != expected.gradients.end()) {
        weight_errors_.add(gradient, bounds->second, "gradient of " + name);
      } else {  // no token came by
        EXPECT_EQ(gradient, std::vector<float>(gradient.size(), 0.0F)) << name;
      }
    }
    // Neither depends on chunks, window or pipeline in a single bit.
    if (first) {
      EXPECT_EQ(result.output, first->output);
      EXPECT_EQ(result.grad_input, first->grad_input);
    } else {
      first = std::move(result);
    }
  }
  return *first;
}

/// Experts' rows have the same bits under every dispatcher; the sums behind them differ by their roundings.
void LayerInRoundings::compare_dispatchers(const LayerProblem& problem, const comm::ProcessGrid& grid,
                                           const std::map<Dispatcher, Rig::LayerResult>& results) {
  const Rig::LayerResult& flat = results.at(Dispatcher::alltoall);
  const MoeRounding of_flat = bounds(problem, grid, Dispatcher::alltoall, Roundings::from_sums);
  for (const auto& [dispatcher, result] : results) {
    const MoeRounding of_other = bounds(problem, grid, dispatcher, Roundings::from_sums);
    const auto compare = [&](const auto& rows, const auto& values, Errors& differences) {
      const BoundedRow one = mine(problem, of_flat.*rows);
      const BoundedRow other = mine(problem, of_other.*rows);
      for (std::size_t i = 0; i < one.size(); ++i) {
        const double difference =
            std::abs(static_cast<double>((flat.*values)[i]) - static_cast<double>((result.*values)[i]));
        differences.add(difference, one[i].error + other[i].error, std::string(name_of(dispatcher)), i);
      }
    };
    compare(&MoeRounding::output, &Rig::LayerResult::output, output_differences_);
    compare(&MoeRounding::grad_input, &Rig::LayerResult::grad_input, grad_input_differences_);
  }
  // Which nodes a token goes to does not matter for who sums what.
  EXPECT_EQ(results.at(Dispatcher::hierarchical).output, results.at(Dispatcher::hierarchical_dedup).output);
  EXPECT_EQ(results.at(Dispatcher::hierarchical).grad_input,
            results.at(Dispatcher::hierarchical_dedup).grad_input);
}

TEST_P(LayerInRoundings, StaysWithinThemUnderEveryPlan) {
  constexpr int kProblems = 5;
  for (int i = 0; i < kProblems; ++i) {
    const std::uint64_t seed = seed_of(200 + i, job().size());
    Dice dice(seed);
    const LayerProblem problem = draw_layer(dice, job().size(), i == 0);
    SCOPED_TRACE(fmt::format("seed {} tokens {} model {}", seed, fmt::join(problem.tokens, " "),
                             problem.config.source));
    const comm::ProcessGrid& grid = grids_[static_cast<std::size_t>(i) % grids_.size()];
    std::map<Dispatcher, Rig::LayerResult> results;
    for (const Dispatcher dispatcher : schedule::kDispatchers) {
      results[dispatcher] = run_plans(problem, grid, dispatcher, dice);
    }
    compare_dispatchers(problem, grid, results);
  }
  report();
}

void LayerInRoundings::report() const {
  const std::array errors = {&output_errors_, &grad_input_errors_, &weight_errors_, &output_differences_,
                             &grad_input_differences_};
  std::array<double, errors.size()> largest{};
  std::ranges::transform(errors, largest.begin(), &Errors::largest);
  comm::all_reduce(job(), std::span<double>(largest), comm::ReduceOp::max);
  if (job().rank() == 0) {
    fmt::print(
        "largest error over its bound, {}: output {:.2f}, gradient of the input {:.2f}, of weights {:.2f}; "
        "between dispatchers: output {:.2f}, gradient of the input {:.2f}\n",
        GetParam().name, largest[0], largest[1], largest[2], largest[3], largest[4]);
  }
  // A bound that nothing comes near would hold for wrong sums too. In f32 it grows with the lengths of sums,
  // their errors as the square root.
  const double least = GetParam().type == DType::bf16 ? 0.05 : 0.002;
  const std::size_t compared = job().size() > 1 ? errors.size() : 3;
  for (std::size_t i = 0; i < compared; ++i) {
    EXPECT_GE(largest[i], least) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LayerInRoundings,
                         testing::Values(Numbers{"bf16", DType::bf16, kernels::Bf16Products::native},
                                         Numbers{"bf16_widened", DType::bf16, kernels::Bf16Products::widened},
                                         Numbers{"f32", DType::f32}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace expedite::model::tests
