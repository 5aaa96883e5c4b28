// Shares of communication that ran under compute, in a schedule small enough to follow by hand.
#include "expedite/cost/communication_share.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace expedite::cost {
namespace {

using schedule::Communication;
using schedule::Op;
using schedule::Pass;
using schedule::Schedule;
using schedule::Stream;
using schedule::Task;

// Forward 2 | dispatch 4, forward 1 beneath it | input gradients 3 | combine 2 | forward 1 | reduction 5
Schedule small() {
  Schedule schedule;
  schedule.groups = {{"ep", {0}}};
  const auto communication = [](Op op, Stream stream, int seconds, schedule::TaskId after) {
    return Task{
        .op = op, .stream = stream, .layer = seconds, .after = {after}, .communication = Communication{}};
  };
  schedule.tasks = {{.op = Op::attention, .layer = 2},
                    communication(Op::dispatch, Stream::intra, 4, 0),
                    {.op = Op::shared_experts, .layer = 1},
                    {.op = Op::experts, .pass = Pass::input_grad, .layer = 3, .after = {1}},
                    communication(Op::combine, Stream::intra, 2, 3),
                    {.op = Op::unpermute, .layer = 1, .after = {4}},
                    communication(Op::reduce_dense, Stream::reduce, 5, 5)};
  return schedule;
}

TEST(CommunicationShare, CountsWhatComputeWaitedFor) {
  const Schedule schedule = small();
  const std::vector<RankClass> ranks = {{&schedule, 3}};
  const Simulation result = simulate(
      ranks,
      [](const Schedule&, const Task& task) { return TaskCost{.seconds = static_cast<double>(task.layer)}; },
      {.events = true});
  EXPECT_EQ(result.seconds, 2 + 4 + 3 + 2 + 1 + 5);
  const CommunicationShare exchanges =
      communication_share(result.ranks[0], CommunicationKind::expert_parallel);
  EXPECT_DOUBLE_EQ(exchanges.under_way, 6);
  EXPECT_DOUBLE_EQ(exchanges.exposed, 3 + 2);
  EXPECT_DOUBLE_EQ(exchanges.hidden(), 1.0 / 6.0);
  const CommunicationShare gradients = communication_share(result.ranks[0], CommunicationKind::gradients);
  EXPECT_DOUBLE_EQ(gradients.hidden(), 0.0);
  EXPECT_DOUBLE_EQ(communication_share(result.ranks[0], CommunicationKind::pipeline).hidden(), 1.0);

  const Window steady = steady_state(result.ranks[0]);
  EXPECT_DOUBLE_EQ(steady.begin, 6);
  EXPECT_DOUBLE_EQ(steady.end, 12);
  const CommunicationShare inside = communication_share(result, CommunicationKind::expert_parallel, true);
  EXPECT_DOUBLE_EQ(inside.under_way, 3 * 2);
  EXPECT_DOUBLE_EQ(inside.exposed, 3 * 2);
  const CommunicationShare part =
      communication_share(result.ranks[0], CommunicationKind::expert_parallel, {4, 10});
  EXPECT_DOUBLE_EQ(part.under_way, 2 + 1);
  EXPECT_DOUBLE_EQ(part.exposed, 2 + 1);
}

TEST(CommunicationShare, OfNothing) {
  EXPECT_EQ(steady_state({}).end, 0.0);
  EXPECT_EQ(communication_share(Simulation{}, CommunicationKind::expert_parallel, true).hidden(), 1.0);
}

TEST(CommunicationShare, EveryKindHasAName) {
  for (int kind = 0; kind < kCommunicationKinds; ++kind) {
    EXPECT_NE(name_of(static_cast<CommunicationKind>(kind)), "?");
  }
}

}  // namespace
}  // namespace expedite::cost
