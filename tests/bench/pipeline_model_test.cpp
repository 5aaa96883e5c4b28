// What Adaptive Pipe hides on a large model, beside the other schedules.
#include "bench/pipeline_model.h"

#include <gtest/gtest.h>

#include "expedite/base/error.h"
#include "expedite/cost/communication_share.h"

namespace expedite::bench {
namespace {

using cost::CommunicationKind;
using schedule::PipelineKind;

cost::CommunicationShare exchanges(const cost::Simulation& simulation, bool only_steady_state) {
  return cost::communication_share(simulation, CommunicationKind::expert_parallel, only_steady_state);
}

// 61 layers on 16 stages of 2 virtual stages, 64 micro-batches, 32 expert-parallel ranks on nodes of 8.
TEST(PipelineModel, AdaptivePipeHidesTheExchangesOfTheSteadyState) {
  for (const double ratio : {1.2, 1.5, 2.0}) {
    PipelineModel model;
    model.compute_to_communication = ratio;
    const SimulatedPipeline adaptive(model, PipelineKind::adaptive_pipe);
    const cost::Simulation with = adaptive.simulate({.events = true});
    EXPECT_GE(exchanges(with, true).hidden(), 0.98) << ratio;
    const SimulatedPipeline interleaved(model, PipelineKind::interleaved);
    const cost::Simulation without = interleaved.simulate({.events = true});
    EXPECT_LT(exchanges(without, true).hidden(), 0.5) << ratio;
    EXPECT_LT(with.seconds, 0.85 * without.seconds) << ratio;
  }
}

// Outside of pairs, a micro-batch hides exchanges under its own other chunks.
TEST(PipelineModel, ChunksHideWhatHasNoPartner) {
  PipelineModel model;
  const SimulatedPipeline whole(model, PipelineKind::adaptive_pipe);
  model.chunks = 2;
  const SimulatedPipeline chunked(model, PipelineKind::adaptive_pipe);
  const cost::Simulation without = whole.simulate({.events = true});
  const cost::Simulation with = chunked.simulate({.events = true});
  EXPECT_NEAR(with.ranks[5].compute, without.ranks[5].compute, 1e-9);
  EXPECT_GT(exchanges(with, false).hidden(), 0.92);
  EXPECT_LT(with.seconds, without.seconds);
}

// With compute half of the exchanges, those between nodes alone are 1.4 times compute: 0.4 of 2 stay.
TEST(PipelineModel, CannotHideMoreThanThereIsCompute) {
  PipelineModel model;
  model.micro_batches = 32;
  model.compute_to_communication = 0.5;
  const SimulatedPipeline adaptive(model, PipelineKind::adaptive_pipe);
  EXPECT_LT(exchanges(adaptive.simulate({.events = true}), true).hidden(), 0.8);
}

TEST(PipelineModel, AccountsForAllTimeOnEveryStage) {
  PipelineModel model;
  model.stages = 4;
  model.layers = 15;
  model.micro_batches = 16;
  for (const PipelineKind kind : schedule::kPipelineKinds) {
    const SimulatedPipeline pipeline(model, kind);
    double compute = 0.0;
    for (const schedule::Schedule& schedule : pipeline.schedules()) {
      for (const schedule::Task& task : schedule.tasks) {
        compute += task.communication ? 0.0 : pipeline.cost_of(task).seconds;
      }
    }
    for (const bool contention : {false, true}) {
      const cost::Simulation simulation = pipeline.simulate({.contention = contention, .events = true});
      double simulated = 0.0;
      for (const cost::RankTimes& rank : simulation.ranks) {
        EXPECT_NEAR(rank.compute + rank.exposed + rank.bubble, simulation.seconds, 1e-9);
        EXPECT_GE(rank.bubble, -1e-9);
        simulated += rank.compute;
        const auto all = [&](CommunicationKind which) {
          return cost::communication_share(rank, which).exposed;
        };
        EXPECT_NEAR(all(CommunicationKind::expert_parallel) + all(CommunicationKind::pipeline) +
                        all(CommunicationKind::gradients) + all(CommunicationKind::other),
                    rank.exposed, 1e-6);
      }
      EXPECT_NEAR(simulated, compute, 1e-9);
    }
  }
}

TEST(PipelineModel, TakesRecomputeAndKeepsLess) {
  PipelineModel model;
  model.stages = 4;
  model.layers = 15;
  model.micro_batches = 16;
  const SimulatedPipeline keeps(model, PipelineKind::adaptive_pipe);
  model.recompute = schedule::LayerRecompute::full;
  const SimulatedPipeline recomputes(model, PipelineKind::adaptive_pipe);
  const cost::Simulation kept = keeps.simulate({});
  const cost::Simulation again = recomputes.simulate({});
  EXPECT_GT(again.seconds, kept.seconds);
  EXPECT_LT(again.ranks[0].total_peak_bytes, kept.ranks[0].total_peak_bytes / 2);
}

TEST(PipelineModel, NeedsALayerForEveryPart) {
  PipelineModel model;
  model.layers = 20;
  EXPECT_THROW(SimulatedPipeline(model, PipelineKind::interleaved), Error);
}

}  // namespace
}  // namespace expedite::bench
