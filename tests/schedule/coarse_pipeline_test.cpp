// Coarse pipelines are sound on every legal shape.
#include "expedite/schedule/coarse_pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "expedite/base/error.h"
#include "expedite/schedule/verify.h"
#include "tests/schedule/pipeline_shapes.h"

namespace expedite::schedule {
namespace {

std::vector<Schedule> all_stages(const CoarsePipeline& pipeline) {
  std::vector<Schedule> schedules;
  for (int stage = 0; stage < pipeline.shape.stages; ++stage) {
    schedules.push_back(build_coarse_pipeline(pipeline, stage));
  }
  return schedules;
}

TEST(CoarsePipeline, IsSoundInEveryLegalShape) {
  for (const PipelineShape& shape : testing::legal_shapes(7, 3, 21)) {
    const std::vector<std::int64_t> bytes(static_cast<std::size_t>(parts_of(shape)), 1);
    EXPECT_EQ(verify(all_stages({shape, bytes, bytes})), std::vector<std::string>{})
        << testing::name_of(shape);
  }
  const PipelineShape large{PipelineKind::dualpipe, 16, 1, 40};
  EXPECT_EQ(verify(all_stages({large})), std::vector<std::string>{});
}

TEST(CoarsePipeline, SendsEveryBoundaryOncePerMicroBatchAndDirection) {
  for (const PipelineShape& shape : testing::legal_shapes(6, 3, 12)) {
    std::ptrdiff_t sends = 0;
    for (const Schedule& schedule : all_stages({shape})) {
      sends += std::ranges::count(schedule.tasks, Op::send, &Task::op);
    }
    const int boundaries = shape.stages == 1 ? 0 : parts_of(shape) - 1;
    EXPECT_EQ(sends, 2 * boundaries * shape.micro_batches) << testing::name_of(shape);
  }
}

TEST(CoarsePipeline, WeighsPartsByTheirBytes) {
  const PipelineShape shape{PipelineKind::one_f_one_b, 4, 1, 8};
  for (int stage = 0; stage < 4; ++stage) {
    const Schedule schedule = build_coarse_pipeline({shape, {1, 10, 100, 1000}, {2, 20, 200, 2000}}, stage);
    const std::int64_t one = stage == 0 ? 3 : stage == 1 ? 30 : stage == 2 ? 300 : 3000;
    EXPECT_EQ(forecast_memory(schedule).total_peak, (4 - stage) * one);
  }
}

TEST(CoarsePipeline, RejectsSizesOfOtherParts) {
  EXPECT_THROW((void)build_coarse_pipeline({{PipelineKind::one_f_one_b, 4, 1, 8}, {1, 2, 3}}, 0), Error);
  EXPECT_THROW((void)build_coarse_pipeline({{PipelineKind::dualpipe, 4, 1, 7}}, 0), Error);
}

// A message that one side lost, or that comes in another order, is reported.
TEST(CoarsePipeline, VerifierSeesBrokenMessages) {
  const auto sound = all_stages({{PipelineKind::interleaved, 3, 2, 6}});
  auto lost = sound;
  auto& tasks = lost[1].tasks;
  const auto receive = std::ranges::find(tasks, Op::receive, &Task::op);
  receive->communication.reset();
  receive->stream = Stream::compute;
  EXPECT_FALSE(verify(lost).empty());

  auto swapped = sound;
  std::vector<Task*> sends;
  for (Task& task : swapped[0].tasks) {
    if (task.op == Op::send && task.stream == Stream::send_next) {
      sends.push_back(&task);
    }
  }
  std::swap(sends[0]->micro_batch, sends[1]->micro_batch);
  const auto problems = verify(swapped);
  ASSERT_FALSE(problems.empty());
  EXPECT_NE(problems.front().find("not the same message"), std::string::npos) << problems.front();
}

}  // namespace
}  // namespace expedite::schedule
