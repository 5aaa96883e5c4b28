// The state of a step, driven by hand with times of our choosing, and its texts.
#include "expedite/runtime/step.h"

#include <gtest/gtest.h>

namespace expedite::runtime {
namespace {

using schedule::Communication;
using schedule::Op;
using schedule::Schedule;
using schedule::Stream;

Schedule exchange() {
  Schedule schedule;
  schedule.groups = {{"ep", {0, 1}}};
  schedule.tasks = {{.op = Op::permute, .layer = 3, .micro_batch = 0},
                    {.op = Op::dispatch,
                     .stream = Stream::intra,
                     .layer = 3,
                     .micro_batch = 0,
                     .after = {0},
                     .communication = Communication{}},
                    {.op = Op::embedding, .stream = Stream::prefetch},
                    {.op = Op::experts, .layer = 3, .micro_batch = 0, .after = {1, 2}}};
  return schedule;
}

TEST(Step, FollowsDependenciesAndStreams) {
  const Schedule schedule = exchange();
  Step step(schedule, 100);
  EXPECT_EQ(step.head(Stream::compute), 0);
  EXPECT_TRUE(step.head_ready(Stream::compute));
  EXPECT_FALSE(step.head_ready(Stream::intra));
  EXPECT_EQ(step.head(Stream::reduce), -1);
  step.begin(Stream::compute, 110);
  EXPECT_EQ(step.head(Stream::compute), -1);  // one at a time
  EXPECT_EQ(step.end(Stream::compute, 120, 0).wait, 10);
  EXPECT_EQ(step.head(Stream::compute), 3);
  EXPECT_FALSE(step.head_ready(Stream::compute));
  EXPECT_TRUE(step.head_ready(Stream::intra));
  EXPECT_FALSE(step.finished());
}

// Experts wait from 120 on; the dispatch ends at `dispatched`, the prefetch at `prefetched`; they start at
// `started`.
tracing::TraceEvent experts_event(std::int64_t dispatched, std::int64_t prefetched, std::int64_t started) {
  const Schedule schedule = exchange();
  Step step(schedule, 100);
  step.begin(Stream::compute, 100);
  (void)step.end(Stream::compute, 120, 0);
  step.begin(Stream::intra, 121);
  step.begin(Stream::prefetch, 105);
  (void)step.end(Stream::prefetch, prefetched, 0);
  (void)step.end(Stream::intra, dispatched, 77);
  step.begin(Stream::compute, started);
  tracing::TraceEvent event = step.end(Stream::compute, started + 1, 0);
  EXPECT_TRUE(step.finished());
  return event;
}

TEST(Step, TellsExposedCommunicationFromOtherWaits) {
  EXPECT_EQ(experts_event(200, 110, 203).wait, 83);
  EXPECT_EQ(experts_event(200, 110, 203).exposed, 83);  // with the time to wake up
  EXPECT_EQ(experts_event(150, 200, 203).exposed, 30);  // then the prefetch was late
  EXPECT_EQ(experts_event(119, 200, 203).exposed, 0);
  EXPECT_EQ(experts_event(119, 110, 123).wait, 3);
  EXPECT_EQ(experts_event(119, 110, 123).exposed, 0);
}

TEST(Step, IsStuckOnlyInACircle) {
  Schedule schedule = exchange();
  schedule.tasks[0].after = {3};
  Step step(schedule, 0);
  EXPECT_FALSE(step.stuck());  // the prefetch can run
  step.begin(Stream::prefetch, 1);
  EXPECT_FALSE(step.stuck());  // and runs
  (void)step.end(Stream::prefetch, 2, 0);
  EXPECT_TRUE(step.stuck());
  EXPECT_FALSE(Step(Schedule{}, 0).stuck());
}

TEST(Step, HasTextsThatSayWhatStreamsDo) {
  const Schedule schedule = exchange();
  const std::int64_t second = 1'000'000'000;
  Step step(schedule, 0);
  EXPECT_EQ(to_string(step.status(second)),
            "compute: about to start L3 mb0 permute forward\n"
            "prefetch: about to start embedding forward\n"
            "intra: waiting 1.0 s for L3 mb0 permute forward (compute)");
  step.begin(Stream::compute, second);
  step.begin(Stream::prefetch, second);
  (void)step.end(Stream::prefetch, second, 0);
  EXPECT_EQ(to_string(step.status(13 * second + second / 10)),
            "compute: L3 mb0 permute forward, running for 12.1 s\n"
            "prefetch: idle\n"
            "intra: waiting 13.1 s for L3 mb0 permute forward (compute)");
  (void)step.end(Stream::compute, 14 * second, 0);
  step.begin(Stream::intra, 15 * second);
  EXPECT_EQ(to_string(step.status(45 * second)),
            "compute: waiting 31.0 s for L3 mb0 dispatch forward (intra)\n"
            "prefetch: idle\n"
            "intra: L3 mb0 dispatch forward (group ep), in flight for 30.0 s");
}

}  // namespace
}  // namespace expedite::runtime
