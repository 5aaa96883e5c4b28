// Whole steps under every dispatcher, pipeline and number of chunks, on ranks spread over nodes in several
// ways, against the independent model in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "tests/model/mpi/rig.h"

namespace expedite::model::tests {
namespace {

using schedule::ChunkPipeline;
using schedule::Dispatcher;

/// All ranks in one expert-parallel group: each a node of its own, all of one node, and two uneven nodes.
const std::vector<std::unique_ptr<comm::ProcessGrid>>& grids() {
  static const std::vector<std::unique_ptr<comm::ProcessGrid>> kGrids = [] {
    std::vector<std::unique_ptr<comm::ProcessGrid>> grids;
    for (const int per_node : {1, job().size(), std::max(1, job().size() / 2 + 1)}) {
      std::vector<int> node;
      for (int rank = 0; rank < job().size(); ++rank) {
        node.push_back(rank / per_node);
      }
      grids.push_back(std::make_unique<comm::ProcessGrid>(job(), job().size(), node));
    }
    return grids;
  }();
  return kGrids;
}

std::vector<schedule::EpPlan> plans_of(Dispatcher dispatcher, Dice& dice) {
  std::vector<schedule::EpPlan> plans;
  for (const ChunkPipeline pipeline :
       {ChunkPipeline::continuous, ChunkPipeline::pairwise, ChunkPipeline::none}) {
    for (const int chunks : {1, 2, 5}) {
      plans.push_back({.dispatcher = dispatcher,
                       .chunking = {.chunks = chunks, .tapered = dice.flip()},
                       .pipeline = pipeline,
                       .window = static_cast<int>(dice.between(1, 3)),
                       .recompute = static_cast<schedule::MoeRecompute>(dice.between(0, 2))});
    }
  }
  return plans;
}

double largest_gradient(const Expected& expected) {
  double largest = 0.0;
  for (const auto& [name, gradient] : expected.gradients) {
    for (const double value : gradient) {
      largest = std::max(largest, std::abs(value));
    }
  }
  return largest;
}

class EveryEpPlan : public testing::TestWithParam<int> {};

// fp32: rounding through two layers and sums of a few dozen terms, as for a step in one piece.
TEST_P(EveryEpPlan, AgreesWithTheReferenceAndWithItself) {
  constexpr double kTolerance = 2e-5;
  const comm::Communicator& world = job();
  Dice dice(static_cast<std::uint64_t>(500 + 10 * GetParam() + world.size()));
  nlohmann::json changes = nlohmann::json::object();
  if (GetParam() == 1) {
    changes = {
        {"model_type", "qwen2_moe"}, {"shared_expert_intermediate_size", 20}, {"use_sliding_window", false}};
  }
  const Problem problem = draw_problem(dice, tiny_config(changes), 2, world.size(), 1e-3, false);
  const BalanceOptions balance = {.aux_loss = AuxLoss::batch, .aux_coefficient = 0.1};
  const Expected expected = expected_step(problem.config, problem.weights, problem.batch, balance);
  const double largest = largest_gradient(expected);
  for (const Dispatcher dispatcher : schedule::kDispatchers) {
    for (const auto& grid : grids()) {
      std::map<std::pair<std::string, int>, std::vector<float>> first;
      for (const schedule::EpPlan& plan : plans_of(dispatcher, dice)) {
        SCOPED_TRACE(fmt::format("{} {} N={} window {} recompute {} nodes {}", name_of(dispatcher),
                                 name_of(plan.pipeline), plan.chunking.chunks, plan.window,
                                 name_of(plan.recompute), grid->nodes()));
        Rig rig(problem.config, DType::f32, *grid, State::gradients, plan);
        rig.set_weights(problem.weights);
        Observed observed;
        rig.engine().set_observer(observed.observer());
        const StepResult result = rig.step(problem.batch, {.balance = balance}, false);
        EXPECT_NEAR(result.loss, expected.loss, kTolerance * expected.loss);
        EXPECT_EQ(result.expert_loads, expected.expert_loads);
        for (const auto& [name, gradient] : rig.gather(StateTensor::gradient)) {
          EXPECT_LE(relative_error(gradient, expected.gradients.at(name), 0.1 * largest), kTolerance) << name;
        }
        // Forward does not depend on chunks, window or pipeline in a single bit.
        if (first.empty()) {
          first = observed.values();
        }
        EXPECT_EQ(observed.values(), first);
        const auto events = rig.engine().trace().events();
        const auto exchanges = std::count_if(events.begin(), events.end(), [](const auto& event) {
          return event.op == schedule::Op::metadata;
        });
        EXPECT_EQ(exchanges, world.size() > 1 ? problem.config.layers * problem.batch.micro_batches() : 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EveryEpPlan, testing::Range(0, 2));

}  // namespace
}  // namespace expedite::model::tests
