// Whole pipelines simulated: a few ranks that stand for all, and ranks that are unlike.
#include <gtest/gtest.h>

#include <vector>

#include "expedite/cost/simulator.h"
#include "expedite/schedule/pipeline_step.h"
#include "tests/schedule/pipeline_shapes.h"
#include "tests/schedule/pipeline_specs.h"

namespace expedite::cost {
namespace {

using schedule::Op;
using schedule::PipelineKind;
using schedule::PipelineShape;
using schedule::Schedule;
using schedule::Task;
using schedule::testing::PipelineJob;

const std::vector<PipelineShape> kShapes = {
    {PipelineKind::one_f_one_b, 3, 1, 5},    {PipelineKind::interleaved, 2, 2, 4},
    {PipelineKind::zero_bubble_h1, 3, 1, 5}, {PipelineKind::dualpipe, 4, 1, 8},
    {PipelineKind::adaptive_pipe, 2, 2, 6},
};
constexpr int kPerStage = 4;

/// Of those ranks of every stage that `wanted` has.
std::vector<Schedule> build(const PipelineShape& shape, const std::vector<int>& wanted, bool relays) {
  const PipelineJob job{shape, std::vector<bool>(3 * parts_of(shape), true), kPerStage, kPerStage, 2};
  std::vector<Schedule> schedules;
  for (int stage = 0; stage < shape.stages; ++stage) {
    for (const int number : wanted) {
      schedule::PipelineSpec spec = pipeline_spec_of(job, stage * kPerStage + number);
      spec.step.ep_plan.dispatcher = schedule::Dispatcher::hierarchical_dedup;
      spec.step.relays = relays;
      spec.step.shared_experts = true;
      schedules.push_back(build_pipeline_step(spec));
    }
  }
  return schedules;
}

/// Small integers; experts of rank number `busy` of each stage take three times as long.
Simulation run(const std::vector<Schedule>& schedules, int busy, bool contention = false) {
  std::vector<RankClass> ranks;
  for (const Schedule& schedule : schedules) {
    ranks.push_back({&schedule});
  }
  return simulate(
      ranks,
      [busy](const Schedule& schedule, const Task& task) {
        const int seconds = 1 + (7 * static_cast<int>(task.op) + 3 * static_cast<int>(task.pass)) % 5;
        const bool slow = task.op == Op::experts && schedule.rank % kPerStage == busy;
        return TaskCost{.seconds = static_cast<double>(slow ? 3 * seconds : seconds),
                        .link = task.communication ? (task.stream == schedule::Stream::intra ? 0 : 1) : -1};
      },
      {.contention = contention});
}

TEST(PipelineSimulation, OneRankOfEachStageStandsForAll) {
  for (const PipelineShape& shape : kShapes) {
    for (const bool relays : {false, true}) {
      for (const bool contention : {false, true}) {
        const Simulation all = run(build(shape, {0, 1, 2, 3}, relays), -1, contention);
        const Simulation few = run(build(shape, {0}, relays), -1, contention);
        EXPECT_EQ(few.seconds, all.seconds) << schedule::testing::name_of(shape);
        for (std::size_t stage = 0; stage < few.ranks.size(); ++stage) {
          const RankTimes& one = few.ranks[stage];
          for (std::size_t number = 0; number < kPerStage; ++number) {
            const RankTimes& other = all.ranks[kPerStage * stage + number];
            EXPECT_EQ(one.compute, other.compute);
            EXPECT_EQ(one.exposed, other.exposed);
            EXPECT_EQ(one.bubble, other.bubble);
            EXPECT_EQ(one.total_peak_bytes, other.total_peak_bytes);
          }
        }
      }
    }
  }
}

TEST(PipelineSimulation, ABusyRankAndOneOfTheOthersStandForAll) {
  for (const PipelineShape& shape : kShapes) {
    const Simulation all = run(build(shape, {0, 1, 2, 3}, true), 1);
    const Simulation few = run(build(shape, {0, 1}, true), 1);
    const Simulation even = run(build(shape, {0}, true), -1);
    EXPECT_EQ(few.seconds, all.seconds) << schedule::testing::name_of(shape);
    EXPECT_GT(few.seconds, even.seconds);
    // The others wait for the busy one, which waits less.
    EXPECT_GT(few.ranks[0].bubble, few.ranks[1].bubble);
    EXPECT_EQ(few.ranks[0].bubble, all.ranks[0].bubble);
  }
}

}  // namespace
}  // namespace expedite::cost
