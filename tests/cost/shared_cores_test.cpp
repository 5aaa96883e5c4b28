// Steps small enough to follow by hand, on ranks that share cores with each other and with communication.
#include <gtest/gtest.h>

#include "expedite/cost/simulator.h"

namespace expedite::cost {
namespace {

using schedule::Communication;
using schedule::Op;
using schedule::Schedule;
using schedule::Stream;
using schedule::Task;

/// Compute takes `layer` seconds on a core of its own. Communication takes 4 seconds, 8 beside compute, which
/// keeps half of the core.
TaskCost costs(const Schedule& /*schedule*/, const Task& task) {
  if (task.communication) {
    return {.seconds = 4.0, .link = 0, .busy_seconds = 8.0, .compute_share = 0.5};
  }
  return {.seconds = static_cast<double>(task.layer)};
}

Simulation run(const std::vector<Schedule>& schedules, const std::vector<int>& node_of,
               const CoreSharing& sharing) {
  std::vector<RankClass> ranks;
  for (const Schedule& schedule : schedules) {
    ranks.push_back({&schedule});
  }
  return simulate(ranks, costs, {.cores = Cores{.node_of = node_of, .sharing = sharing}});
}

Schedule compute(int rank, int seconds) {
  return {.rank = rank, .tasks = {{.op = Op::experts, .layer = seconds}}, .buffers = {}, .groups = {}};
}

TEST(SharedCores, RanksOfANodeTakeTurns) {
  const std::vector<Schedule> both = {compute(0, 3), compute(1, 5)};
  EXPECT_DOUBLE_EQ(run(both, {0, 0}, {}).seconds, 5.0) << "a core each";
  // Both at half pace for 6 seconds, then the second alone.
  EXPECT_DOUBLE_EQ(run(both, {0, 0}, {.node = 2.0}).seconds, 8.0);
  EXPECT_DOUBLE_EQ(run(both, {0, 1}, {.cluster = 2.0}).seconds, 8.0) << "of one machine";
}

/// Rank 0 computes beside the exchange, rank 1 does not.
std::vector<Schedule> exchange(int seconds) {
  const Task dispatch{.op = Op::dispatch, .stream = Stream::intra, .communication = Communication{}};
  const std::vector<schedule::Group> groups = {{"ep", {0, 1}}};
  return {{.rank = 0,
           .tasks = {dispatch, {.op = Op::experts, .layer = seconds}},
           .buffers = {},
           .groups = groups},
          {.rank = 1, .tasks = {dispatch}, .buffers = {}, .groups = groups}};
}

TEST(SharedCores, CommunicationAndComputeSlowEachOther) {
  // Half of the members compute: 6 seconds, in which compute does 3.
  EXPECT_DOUBLE_EQ(run(exchange(4), {0, 1}, {}).seconds, 7.0);
  // Compute ends after 4 seconds; a third of the exchange is left, which takes 4/3 seconds alone.
  EXPECT_NEAR(run(exchange(2), {0, 1}, {}).seconds, 4.0 + 4.0 / 3.0, 1e-9);
}

TEST(SharedCores, ARankThatComputesIsLate) {
  std::vector<Schedule> schedules = exchange(3);
  schedules[0].tasks.push_back(
      {.op = Op::combine, .stream = Stream::intra, .after = {1}, .communication = Communication{}});
  schedules[1].tasks.push_back(
      {.op = Op::combine, .stream = Stream::intra, .communication = Communication{}});
  const std::vector<RankClass> ranks = {{schedules.data()}, {&schedules[1]}};
  const auto late = [](const Schedule& /*schedule*/, const Task& task) {
    return task.communication ? TaskCost{.seconds = 4.0, .busy_seconds = 4.0, .busy_start_seconds = 2.0}
                              : TaskCost{.seconds = static_cast<double>(task.layer)};
  };
  // Rank 0 computes for 3 seconds and begins the exchange 2 seconds late; then nobody computes.
  EXPECT_DOUBLE_EQ(simulate(ranks, late, {.cores = Cores{.node_of = {0, 1}}}).seconds, 2.0 + 4.0 + 4.0);
}

TEST(SharedCores, MembersOfACollectiveEndApart) {
  const std::vector<Schedule> schedules = exchange(1);
  std::vector<RankClass> ranks = {{schedules.data()}, {&schedules[1]}};
  const Simulation simulation =
      simulate(ranks,
               [](const Schedule& schedule, const Task& task) {
                 return task.communication ? TaskCost{.seconds = schedule.rank == 0 ? 2.0 : 5.0} : TaskCost{};
               },
               {.events = true, .cores = Cores{.node_of = {0, 1}}});
  EXPECT_EQ(simulation.ranks[0].by_op[static_cast<std::size_t>(Op::dispatch)], 2.0);
  EXPECT_EQ(simulation.ranks[1].by_op[static_cast<std::size_t>(Op::dispatch)], 5.0);
}

}  // namespace
}  // namespace expedite::cost
