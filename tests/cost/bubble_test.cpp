// The bubbles of simulated pipelines against their formulas, exactly: times are small integers.
#include "expedite/cost/bubble.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "expedite/base/error.h"
#include "expedite/cost/simulator.h"
#include "expedite/schedule/coarse_pipeline.h"
#include "tests/schedule/pipeline_shapes.h"

namespace expedite::cost {
namespace {

using schedule::Op;
using schedule::Pass;
using schedule::PipelineKind;
using schedule::PipelineShape;
using schedule::Schedule;
using schedule::Task;

Simulation simulate_pipeline(const PipelineShape& shape, const StageTimes& times) {
  std::vector<Schedule> schedules;
  std::vector<RankClass> ranks;
  schedules.reserve(static_cast<std::size_t>(shape.stages));
  for (int stage = 0; stage < shape.stages; ++stage) {
    schedules.push_back(schedule::build_coarse_pipeline({shape}, stage));
    ranks.push_back({&schedules.back()});
  }
  return simulate(ranks, [&](const Schedule&, const Task& task) {
    // The gain of a pair is its forward's.
    const double gain = task.op == Op::paired_stage ? times.forward + times.backward() - times.paired() : 0.0;
    const double seconds = task.communication              ? 0.0
                           : task.pass == Pass::forward    ? times.forward - gain
                           : task.pass == Pass::input_grad ? times.input_grad
                                                           : times.weight_grad;
    return TaskCost{.seconds = seconds};
  });
}

/// Times that are multiples of v, so that those of a virtual stage are integers too.
std::vector<StageTimes> uniform_times(int v) {
  std::vector<StageTimes> all;
  for (const auto& [f, i, w] : std::vector<std::array<int, 3>>{{1, 1, 1},
                                                               {3, 3, 2},
                                                               {2, 3, 1},
                                                               {5, 4, 3},
                                                               {3, 5, 3},
                                                               {4, 4, 4},
                                                               {4, 2, 1},
                                                               {2, 3, 3},
                                                               {7, 7, 1}}) {
    for (const int gain : {0, 1}) {
      StageTimes times{1.0 * f * v, 1.0 * i * v, 1.0 * w * v};
      times.pair = times.forward + times.backward() - gain * std::min(f, i + w) * v / 2;
      all.push_back(times);
    }
  }
  return all;
}

TEST(Bubble, OfSimulatedPipelinesEqualsItsFormula) {
  std::array<int, schedule::kPipelineKinds.size()> checked{};
  for (const PipelineShape& shape : schedule::testing::legal_shapes(8, 3, 16)) {
    for (const StageTimes& times : uniform_times(2 * shape.virtual_stages)) {
      double formula = 0.0;
      try {
        formula = bubble(shape, times);
      } catch (const Error&) {
        continue;  // not for these times
      }
      const StageTimes part{times.forward / shape.virtual_stages, times.input_grad / shape.virtual_stages,
                            times.weight_grad / shape.virtual_stages, times.paired() / shape.virtual_stages};
      const Simulation result = simulate_pipeline(shape, part);
      const auto least = std::ranges::min_element(result.ranks, {}, &RankTimes::compute);
      ASSERT_EQ(least->compute, least_busy(shape, times)) << schedule::testing::name_of(shape);
      ASSERT_EQ(least->bubble, formula)
          << schedule::testing::name_of(shape) << " F " << times.forward << " B-W " << times.input_grad
          << " W " << times.weight_grad << " F&B " << times.paired();
      ASSERT_EQ(result.ranks.front().exposed, 0.0);
      ++checked[static_cast<std::size_t>(shape.kind)];
    }
  }
  for (const int count : checked) {
    EXPECT_GT(count, 100);
  }
}

TEST(Bubble, IsAsPublished) {
  const StageTimes times{2, 2, 1};  // F 2, B 3, W 1
  EXPECT_EQ(bubble({PipelineKind::one_f_one_b, 8, 1, 32}, times), 7 * 5);
  EXPECT_EQ(bubble({PipelineKind::interleaved, 8, 4, 32}, times), 7 * 5 / 4.0);
  EXPECT_EQ(bubble({PipelineKind::zero_bubble_h1, 8, 1, 32}, times), 7 * 3);
  EXPECT_EQ(bubble({PipelineKind::dualpipe, 8, 1, 32}, {2, 2, 1, 4}), 3 * (4 + 3 - 3));
}

TEST(Bubble, IsNoFormulaOutsideOfWhatItIsFor) {
  EXPECT_THROW((void)bubble({PipelineKind::interleaved, 4, 2, 6}, {1, 1, 1}), Error);
  EXPECT_THROW((void)bubble({PipelineKind::zero_bubble_h1, 4, 1, 8}, {1, 1, 2}), Error);
  EXPECT_THROW((void)bubble({PipelineKind::dualpipe, 4, 1, 8}, {1, 2, 1}), Error);
  EXPECT_THROW((void)bubble({PipelineKind::adaptive_pipe, 4, 1, 7}, {1, 1, 1}), Error);
}

// With the same memory of activations as 1F1B; and one extra micro-batch per stage of dualpipe.
TEST(Bubble, ShrinksFromKindToKind) {
  const StageTimes times{2, 2, 1, 4};
  const auto of = [&](PipelineKind kind, int v) { return bubble({kind, 8, v, 32}, times); };
  EXPECT_GT(of(PipelineKind::one_f_one_b, 1), of(PipelineKind::zero_bubble_h1, 1));
  EXPECT_GT(of(PipelineKind::one_f_one_b, 1), of(PipelineKind::interleaved, 2));
  EXPECT_GT(of(PipelineKind::interleaved, 2), of(PipelineKind::adaptive_pipe, 2));
}

}  // namespace
}  // namespace expedite::cost
