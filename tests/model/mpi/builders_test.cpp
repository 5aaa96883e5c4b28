// Every builder of steps computes the same, to the bit: losses, gradients, weights after several steps. And
// ranks that build different schedules are told so, before anything runs.
#include <gtest/gtest.h>

#include <algorithm>

#include "expedite/runtime/agreement.h"
#include "tests/error_of.h"
#include "tests/model/mpi/rig.h"

namespace expedite::model::tests {
namespace {

using schedule::Builder;
using schedule::Dispatcher;
using schedule::Op;
using schedule::Schedule;
using schedule::StepSpec;

struct Trained {
  std::vector<StepResult> steps;
  Tensors gradients;
  Tensors weights;  // on rank 0
};

Trained train(const Problem& problem, DType dtype, const comm::ProcessGrid& grid,
              const schedule::EpPlan& plan, const BalanceOptions& balance, const Builder& builder) {
  Rig rig(problem.config, dtype, grid, State::training, plan, builder);
  rig.set_weights(problem.weights);
  StepOptions options;
  options.balance = balance;
  options.clip_grad = 1.0;
  options.adamw.learning_rate = 1e-2F;
  Trained trained;
  constexpr int kSteps = 3;
  for (int step = 1; step <= kSteps; ++step) {
    options.adamw.step = options.step = step;
    trained.steps.push_back(rig.step(problem.batch, options, true));
    if (step == 1) {
      trained.gradients = rig.gradients();
    }
  }
  trained.steps.push_back(rig.evaluate(problem.batch));
  trained.weights = rig.gather(StateTensor::weight);
  return trained;
}

/// Of any kind, whose head has weights of its own or the embedding's.
ModelConfig config_with_head(Dice& dice, bool tied) {
  nlohmann::json source = nlohmann::json::parse(random_config(dice).source);
  source["tie_word_embeddings"] = tied;
  return architecture::parse_model_config(source, "the test's model");
}

void expect_same_step(const StepResult& ours, const StepResult& theirs) {
  EXPECT_EQ(ours.loss, theirs.loss);
  EXPECT_EQ(ours.aux_loss, theirs.aux_loss);
  EXPECT_EQ(ours.z_loss, theirs.z_loss);
  EXPECT_EQ(ours.gradient_norm, theirs.gradient_norm);
  EXPECT_EQ(ours.expert_loads, theirs.expert_loads);
}

class BuildersTest : public testing::TestWithParam<Dispatcher> {};

TEST_P(BuildersTest, ComputeTheSameToTheBit) {
  Dice dice(seed_of(400 + static_cast<int>(GetParam()), job().size()));
  for (const int expert_parallel_size : divisors(job().size())) {
    for (const int micro_batches : {1, 2, 4}) {
      const ModelConfig config = config_with_head(dice, false);
      const Problem problem = draw_problem(dice, config, micro_batches, job().size(), 0.0, false);
      const BalanceOptions balance = random_balance(dice);
      const schedule::EpPlan plan = {
          .dispatcher = GetParam(),
          .recompute = dice.flip() ? schedule::MoeRecompute::activation : schedule::MoeRecompute::none};
      const DType dtype = dice.flip() ? DType::f32 : DType::bf16;
      const auto run = [&](const Builder& builder) {
        return train(problem, dtype, grid_of(expert_parallel_size), plan, balance, builder);
      };
      const Trained expected = run(schedule::step_builders().front());
      for (const Builder& builder : schedule::step_builders().subspan(1)) {
        SCOPED_TRACE(fmt::format("{} ep {} micro-batches {} {}", builder.name, expert_parallel_size,
                                 micro_batches, config.source));
        const Trained trained = run(builder);
        EXPECT_EQ(trained.gradients, expected.gradients);
        EXPECT_EQ(trained.weights, expected.weights);
        for (std::size_t step = 0; step < expected.steps.size(); ++step) {
          expect_same_step(trained.steps[step], expected.steps[step]);
        }
      }
    }
  }
}

// Loss and embedding add to one gradient, and which micro-batch's loss stands before which's embedding is the
// builder's choice: the same but for the rounding of these sums.
TEST_P(BuildersTest, ComputeTheSameOfTiedEmbeddings) {
  Dice dice(seed_of(420 + static_cast<int>(GetParam()), job().size()));
  const ModelConfig config = config_with_head(dice, true);
  const Problem problem = draw_problem(dice, config, 4, job().size(), 0.0, false);
  const schedule::EpPlan plan = {.dispatcher = GetParam()};
  const auto run = [&](const Builder& builder) {
    return train(problem, DType::f32, grid_of(job().size()), plan, {}, builder);
  };
  const Trained expected = run(schedule::step_builders().front());
  for (const Builder& builder : schedule::step_builders().subspan(1)) {
    const Trained trained = run(builder);
    EXPECT_EQ(trained.steps.front().loss, expected.steps.front().loss);
    for (const auto& [name, values] : expected.gradients) {
      const std::vector<double> wanted(values.begin(), values.end());
      EXPECT_LT(relative_error(trained.gradients.at(name), wanted),
                name.find("embed") == std::string::npos ? 1e-30 : 1e-5)
          << builder.name << " " << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dispatchers, BuildersTest, testing::ValuesIn(schedule::kDispatchers),
                         [](const auto& test) { return std::string(name_of(test.param)); });

/// As train_step's, but the last rank says that it reduces another layer's gradients.
Schedule build_unlike(const StepSpec& spec) {
  Schedule built = schedule::step_builders().front().build(spec);
  const auto last = std::ranges::find_if(
      built.tasks, [&](const schedule::Task& task) { return task.op == Op::reduce_dense; });
  if (spec.rank == job().size() - 1 && last != built.tasks.end()) {
    last->layer += 1;
  }
  return built;
}

// Purity of builders is what rank 0 counts on; where it fails, the ranks themselves must see it.
TEST(Agreement, IsAskedBeforeAStepRuns) {
  Dice dice(seed_of(450, job().size()));
  const ModelConfig config = tiny_config();
  const Problem problem = draw_problem(dice, config, 1, job().size(), 0.0, false);
  const Builder unlike{"unlike", "for this test", build_unlike};
  Rig rig(config, DType::f32, grid_of(job().size()), State::training, {}, unlike);
  rig.set_weights(problem.weights);
  const std::string error = error_of([&] { (void)rig.step(problem.batch, {}, true); });
  if (job().size() == 1) {
    EXPECT_EQ(error, "no error");
    return;
  }
  EXPECT_NE(
      error.find("the ranks' schedules do not meet: number 1 among the collectives of group world on stream "
                 "reduce is task "),
      std::string::npos)
      << error;
  EXPECT_NE(error.find("(all_reduce) on rank 0, but task "), std::string::npos) << error;
  EXPECT_NE(error.find(fmt::format("(all_reduce) on rank {}", job().size() - 1)), std::string::npos) << error;
}

TEST(Agreement, LetsAlikeRanksGoOn) {
  StepSpec spec;
  spec.rank = job().rank();
  spec.groups = {{"world", {}}, {"ep", {}}, {"expert_dp", {job().rank()}}, {"ep_node", {}}};
  for (int rank = 0; rank < job().size(); ++rank) {
    for (const auto group : {schedule::kWorldGroup, schedule::kExpertParallelGroup, schedule::kNodeGroup}) {
      spec.groups[static_cast<std::size_t>(group)].ranks.push_back(rank);
    }
  }
  spec.sparse = {true, false};
  spec.tokens = 8;
  for (const Builder& builder : schedule::step_builders()) {
    runtime::require_agreement(job(), build(builder, spec));
  }
}

}  // namespace
}  // namespace expedite::model::tests
