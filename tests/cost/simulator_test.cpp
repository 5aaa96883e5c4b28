// The simulator against schedules small enough to follow by hand, and against a slow simulation of random
// ones.
#include "expedite/cost/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "expedite/base/error.h"
#include "tests/schedule/random_schedule.h"

namespace expedite::cost {
namespace {

using schedule::Collective;
using schedule::Communication;
using schedule::Op;
using schedule::Schedule;
using schedule::Stream;
using schedule::Task;

std::vector<RankClass> classes(const std::vector<Schedule>& schedules) {
  std::vector<RankClass> ranks;
  for (const Schedule& schedule : schedules) {
    ranks.push_back({&schedule});
  }
  return ranks;
}

// Tasks take `layer` seconds.
TaskCost layer_seconds(const Schedule& /*schedule*/, const Task& task) {
  return {.seconds = static_cast<double>(std::max(task.layer, 0))};
}

TEST(Simulator, FollowsStreamsAndDependencies) {
  Schedule schedule;
  schedule.groups = {{"ep", {0}}};
  schedule.tasks = {{.op = Op::permute, .layer = 2},
                    {.op = Op::dispatch,
                     .stream = Stream::intra,
                     .layer = 5,
                     .after = {0},
                     .communication = Communication{}},
                    {.op = Op::shared_experts, .layer = 3},
                    {.op = Op::experts, .layer = 4, .after = {1}},
                    {.op = Op::combine,
                     .stream = Stream::intra,
                     .layer = 6,
                     .after = {3},
                     .communication = Communication{}}};
  const std::vector<Schedule> schedules = {schedule};
  const Simulation result = simulate(classes(schedules), layer_seconds, {.events = true});
  EXPECT_EQ(result.seconds, 2 + 5 + 4 + 6);
  EXPECT_EQ(result.tasks, 5);
  const RankTimes& rank = result.ranks.front();
  EXPECT_EQ(rank.compute, 2 + 3 + 4);
  EXPECT_EQ(rank.exposed, 2 + 6);
  EXPECT_EQ(rank.exposed_by_op[static_cast<std::size_t>(Op::dispatch)], 2);
  EXPECT_EQ(rank.exposed_by_op[static_cast<std::size_t>(Op::combine)], 6);
  EXPECT_EQ(rank.by_op[static_cast<std::size_t>(Op::dispatch)], 5);
  EXPECT_EQ(rank.bubble, 0);
  ASSERT_EQ(rank.exposures.size(), 2U);
  EXPECT_EQ(rank.exposures[0].begin, 5);
  EXPECT_EQ(rank.exposures[0].end, 7);
  const auto experts = std::ranges::find(rank.events, Op::experts, &tracing::TraceEvent::op);
  EXPECT_EQ(experts->begin, 7'000'000'000);
  EXPECT_EQ(experts->end, 11'000'000'000);
  EXPECT_EQ(experts->wait, 2'000'000'000);
  EXPECT_EQ(experts->exposed, 2'000'000'000);
}

// Rank 1 comes late: rank 0 waits for it (bubble), then for the exchange (exposed), which takes what its
// slower member says.
TEST(Simulator, BeginsCollectivesWhenAllMembersAreThere) {
  std::vector<Schedule> schedules(2);
  for (int rank = 0; rank < 2; ++rank) {
    Schedule& schedule = schedules[static_cast<std::size_t>(rank)];
    schedule.rank = rank;
    schedule.groups = {{"ep", {0, 1}}};
    schedule.tasks = {{.op = Op::permute, .layer = 1 + 4 * rank},
                      {.op = Op::dispatch,
                       .stream = Stream::inter,
                       .layer = 2 + rank,
                       .after = {0},
                       .communication = Communication{}},
                      {.op = Op::experts, .layer = 1, .after = {1}}};
  }
  const Simulation result = simulate(classes(schedules), layer_seconds);
  EXPECT_EQ(result.seconds, 5 + 3 + 1);
  EXPECT_EQ(result.ranks[0].bubble, 4);
  EXPECT_EQ(result.ranks[0].exposed, 3);
  EXPECT_EQ(result.ranks[1].bubble, 0);
  EXPECT_EQ(result.ranks[1].exposed, 3);
}

TEST(Simulator, TakesAbsentMembersToDoWhatPresentOnesDo) {
  Schedule schedule;
  schedule.rank = 7;
  schedule.groups = {{"ep", {5, 6, 7, 8}}};
  schedule.tasks = {
      {.op = Op::dispatch, .stream = Stream::inter, .layer = 2, .communication = Communication{}}};
  const std::vector<RankClass> ranks = {{&schedule, 4}};
  const Simulation result = simulate(ranks, layer_seconds);
  EXPECT_EQ(result.seconds, 2);
  EXPECT_EQ(result.ranks[0].rank, 7);
  EXPECT_EQ(result.ranks[0].multiplicity, 4);
}

/// A reduction that uses the link at the same time as exchanges do.
Task reduction(int layer) {
  return {.op = Op::reduce_dense,
          .stream = Stream::reduce,
          .layer = layer,
          .communication = Communication{.collective = Collective::all_reduce, .group = 1}};
}

TEST(Simulator, SharesALinkBetweenWhatIsUnderWay) {
  Schedule schedule;
  schedule.groups = {{"ep", {0}}, {"dp", {0}}};
  schedule.tasks = {
      {.op = Op::dispatch, .stream = Stream::inter, .layer = 4, .communication = Communication{}},
      reduction(10),
      {.op = Op::dispatch, .stream = Stream::intra, .layer = 3, .communication = Communication{}}};
  const std::vector<Schedule> schedules = {schedule};
  const TaskCosts costs = [](const Schedule&, const Task& task) {
    return TaskCost{.seconds = static_cast<double>(task.layer), .link = task.stream == Stream::intra ? 0 : 1};
  };
  // Both at half pace until 8, when 6 of the reduction's 10 are left.
  const Simulation shared = simulate(classes(schedules), costs, {.contention = true, .events = true});
  EXPECT_EQ(shared.seconds, 14);
  std::map<Op, std::int64_t> end;
  for (const auto& event : shared.ranks[0].events) {
    end[event.op] = std::max(end[event.op], event.end);
  }
  EXPECT_EQ(end[Op::dispatch], 8'000'000'000);
  EXPECT_EQ(simulate(classes(schedules), costs).seconds, 10);
}

// What is on the wire a part of its time leaves the rest to others.
TEST(Simulator, SharesALinkButForLatency) {
  Schedule schedule;
  schedule.groups = {{"ep", {0}}, {"dp", {0}}};
  schedule.tasks = {
      {.op = Op::dispatch, .stream = Stream::inter, .layer = 4, .communication = Communication{}},
      reduction(8)};
  const std::vector<Schedule> schedules = {schedule};
  const auto seconds = [&](double of_dispatch, double of_reduction) {
    const Simulation result =
        simulate(classes(schedules),
                 [&](const Schedule&, const Task& task) {
                   return TaskCost{.seconds = static_cast<double>(task.layer),
                                   .link = 1,
                                   .latency_seconds = task.op == Op::dispatch ? of_dispatch : of_reduction};
                 },
                 {.contention = true});
    const auto& by_op = result.ranks[0].by_op;
    return std::pair(by_op[static_cast<std::size_t>(Op::dispatch)],
                     by_op[static_cast<std::size_t>(Op::reduce_dense)]);
  };
  EXPECT_EQ(seconds(4.0, 0.0), std::pair(4.0, 8.0)) << "all latency";
  EXPECT_EQ(seconds(4.0, 8.0), std::pair(4.0, 8.0));
  // The dispatch waits for all of the reduction's time: 4 s of which 1 s is on the wire, so 5 s. The
  // reduction waits in that time for a quarter of each second: 4 s of it are done, and 4 are left.
  EXPECT_EQ(seconds(3.0, 0.0), std::pair(5.0, 9.0));
  EXPECT_EQ(seconds(0.0, 0.0), std::pair(8.0, 12.0));
}

// What comes first through a link that has rested passes faster than what follows.
TEST(Simulator, LetsLinksRest) {
  const auto ends = [](int pause) {
    Schedule schedule;
    schedule.groups = {{"ep", {0}}};
    const Task exchange{.op = Op::dispatch, .stream = Stream::inter, .communication = Communication{}};
    Task late = exchange;
    late.after = {1};
    schedule.tasks = {exchange, {.op = Op::experts, .layer = pause, .after = {0}}, late};
    const std::vector<Schedule> schedules = {schedule};
    const TaskCosts costs = [](const Schedule&, const Task& task) {
      return task.communication ? TaskCost{.seconds = 4.0, .link = 1, .rest_seconds = 3.0}
                                : TaskCost{.seconds = static_cast<double>(task.layer)};
    };
    return simulate(classes(schedules), costs, {.contention = true}).seconds;
  };
  EXPECT_EQ(ends(0), 4.0 + 4.0 + 3.0);
  EXPECT_EQ(ends(2), 4.0 + 2.0 + 4.0 + 1.0);
  EXPECT_EQ(ends(5), 4.0 + 5.0 + 4.0);
}

// Nor does a link rest that something else is under way on.
TEST(Simulator, LetsLinksRestOnlyWhenNothingUsesThem) {
  Schedule schedule;
  schedule.groups = {{"ep", {0}}, {"dp", {0}}};
  schedule.tasks = {
      reduction(100),
      {.op = Op::experts, .layer = 2},
      {.op = Op::dispatch, .stream = Stream::inter, .after = {1}, .communication = Communication{}}};
  const std::vector<Schedule> schedules = {schedule};
  const TaskCosts costs = [](const Schedule&, const Task& task) {
    const bool exchange = task.op == Op::dispatch;
    return TaskCost{.seconds = exchange ? 4.0 : static_cast<double>(task.layer),
                    .link = task.communication ? 1 : -1,
                    .rest_seconds = exchange ? 3.0 : 0.0};
  };
  const Simulation result = simulate(classes(schedules), costs, {.contention = true});
  EXPECT_EQ(result.ranks[0].by_op[static_cast<std::size_t>(Op::dispatch)], 2.0 * (4.0 + 3.0));
}

// Between two ranks a message goes at the pace of its slower end.
TEST(Simulator, SharesLinksOfBothEndsOfAMessage) {
  std::vector<Schedule> schedules(2);
  for (int rank = 0; rank < 2; ++rank) {
    Schedule& schedule = schedules[static_cast<std::size_t>(rank)];
    schedule.rank = rank;
    schedule.groups = {{"pp", {0, 1}}, {"dp", {rank}}};
    schedule.tasks.push_back(
        {.op = rank == 0 ? Op::send : Op::receive,
         .stream = rank == 0 ? Stream::send_next : Stream::receive_previous,
         .layer = 4,
         .communication = Communication{.collective = rank == 0 ? Collective::send : Collective::receive,
                                        .peer = 1 - rank}});
  }
  schedules[1].tasks.push_back(
      {.op = Op::reduce_dense,
       .stream = Stream::reduce,
       .layer = 2,
       .communication = Communication{.collective = Collective::all_reduce, .group = 1}});
  const TaskCosts costs = [](const Schedule&, const Task& task) {
    return TaskCost{.seconds = static_cast<double>(task.layer), .link = 1};
  };
  EXPECT_EQ(simulate(classes(schedules), costs, {.contention = true}).seconds, 6);
  EXPECT_EQ(simulate(classes(schedules), costs).seconds, 4);
}

// A link carries both directions at once: two ranks that send to each other do not slow each other down.
TEST(Simulator, SharesLinksByDirection) {
  std::vector<Schedule> schedules(2);
  for (int rank = 0; rank < 2; ++rank) {
    Schedule& schedule = schedules[static_cast<std::size_t>(rank)];
    schedule.rank = rank;
    schedule.groups = {{"pp", {0, 1}}};
    for (const Collective collective : {Collective::send, Collective::receive}) {
      const bool send = collective == Collective::send;
      const bool next = (rank == 0) == send;
      const Stream stream = send ? (next ? Stream::send_next : Stream::send_previous)
                                 : (next ? Stream::receive_previous : Stream::receive_next);
      schedule.tasks.push_back({.op = send ? Op::send : Op::receive,
                                .stream = stream,
                                .layer = 4,
                                .communication = Communication{.collective = collective, .peer = 1 - rank}});
    }
  }
  const TaskCosts costs = [](const Schedule&, const Task& task) {
    return TaskCost{.seconds = static_cast<double>(task.layer), .link = 1};
  };
  EXPECT_EQ(simulate(classes(schedules), costs, {.contention = true}).seconds, 4);
}

TEST(Simulator, TracksMemoryOverTime) {
  Schedule schedule;
  schedule.buffers = {{.category = MemoryCategory::activations, .expected_bytes = 10},
                      {.category = MemoryCategory::communication, .expected_bytes = 7},
                      {.category = MemoryCategory::activations, .expected_bytes = 5}};
  schedule.tasks = {{.layer = 1, .acquires = {0}},
                    {.layer = 1, .acquires = {1}, .releases = {0}},
                    {.layer = 1, .acquires = {2}, .releases = {1, 2}}};
  const std::vector<Schedule> schedules = {schedule};
  const Simulation result = simulate(classes(schedules), layer_seconds, {.memory = true});
  const RankTimes& rank = result.ranks[0];
  EXPECT_EQ(rank.total_peak_bytes, 17);
  EXPECT_EQ(rank.peak_bytes[static_cast<std::size_t>(MemoryCategory::activations)], 10);
  EXPECT_EQ(rank.peak_bytes[static_cast<std::size_t>(MemoryCategory::communication)], 7);
  ASSERT_EQ(rank.memory.size(), 5U);
  EXPECT_EQ(rank.memory[2].time, 2);  // one buffer is given back, another taken
  EXPECT_EQ(rank.memory[2].bytes, 5);
  EXPECT_EQ(rank.memory.back().bytes, 0);
}

// When everything begins and ends, by going over all tasks again and again, written for reading.
double slow_simulation(const std::vector<Schedule>& schedules, const TaskCosts& costs) {
  struct State {
    double ready = -1.0;
    double end = -1.0;
  };
  std::vector<std::vector<State>> states;
  for (const Schedule& schedule : schedules) {
    states.emplace_back(schedule.tasks.size());
  }
  // The number of a task among those that it could be confused with, by what it would meet.
  const auto number = [&](std::size_t rank, std::size_t id) {
    const Task& task = schedules[rank].tasks[id];
    int count = 0;
    for (std::size_t other = 0; other < id; ++other) {
      const Task& earlier = schedules[rank].tasks[other];
      const auto message = [](Collective c) { return c == Collective::send || c == Collective::receive; };
      if (earlier.communication && earlier.stream == task.stream &&
          earlier.communication->group == task.communication->group &&
          earlier.communication->peer == task.communication->peer &&
          message(earlier.communication->collective) == message(task.communication->collective) &&
          (!message(task.communication->collective) ||
           earlier.communication->collective == task.communication->collective)) {
        ++count;
      }
    }
    return count;
  };
  const auto partners = [&](std::size_t rank, std::size_t id) {
    const Schedule& schedule = schedules[rank];
    const Communication& mine = *schedule.tasks[id].communication;
    const schedule::Group& group = schedule.groups[static_cast<std::size_t>(mine.group)];
    const bool message = mine.collective == Collective::send || mine.collective == Collective::receive;
    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (const int other : group.ranks) {
      const Schedule& theirs = schedules[static_cast<std::size_t>(other)];
      for (std::size_t i = 0; i < theirs.tasks.size(); ++i) {
        const auto& communication = theirs.tasks[i].communication;
        if (!communication || theirs.tasks[i].stream != schedule.tasks[id].stream ||
            theirs.groups[static_cast<std::size_t>(communication->group)].name != group.name) {
          continue;
        }
        const bool meets = message ? other == mine.peer && communication->peer == schedule.rank &&
                                         communication->collective != mine.collective
                                   : communication->collective == mine.collective;
        if (meets && number(static_cast<std::size_t>(other), i) == number(rank, id)) {
          found.emplace_back(static_cast<std::size_t>(other), i);
        }
      }
    }
    return found;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
      std::array<double, schedule::kStreams> stream_end{};
      for (std::size_t id = 0; id < schedules[rank].tasks.size(); ++id) {
        const Task& task = schedules[rank].tasks[id];
        double& before = stream_end[static_cast<std::size_t>(task.stream)];
        State& state = states[rank][id];
        double ready = before;
        for (const schedule::TaskId earlier : task.after) {
          const double end = states[rank][static_cast<std::size_t>(earlier)].end;
          ready = end < 0.0 || ready < 0.0 ? -1.0 : std::max(ready, end);
        }
        if (state.ready < 0.0 && ready >= 0.0) {
          state.ready = ready;
          moved = true;
        }
        if (state.end < 0.0 && state.ready >= 0.0) {
          double begin = state.ready;
          double seconds = costs(schedules[rank], task).seconds;
          if (task.communication) {
            for (const auto& [other, i] : partners(rank, id)) {
              const State& theirs = states[other][i];
              begin = theirs.ready < 0.0 || begin < 0.0 ? -1.0 : std::max(begin, theirs.ready);
              seconds = std::max(seconds, costs(schedules[other], schedules[other].tasks[i]).seconds);
            }
          }
          if (begin >= 0.0) {
            state.end = begin + seconds;
            moved = true;
          }
        }
        before = state.end;
      }
    }
  }
  double end = 0.0;
  for (const auto& rank : states) {
    for (const State& state : rank) {
      EXPECT_GE(state.end, 0.0);
      end = std::max(end, state.end);
    }
  }
  return end;
}

TEST(Simulator, AgreesWithASlowOneOnRandomSchedules) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const auto schedules = schedule::testing::random_schedules(
        seed, {.ranks = 1 + static_cast<int>(seed % 5), .events = 10 + static_cast<int>(seed)});
    const TaskCosts costs = [&](const Schedule& schedule, const Task& task) {
      const auto index = static_cast<unsigned>(&task - schedule.tasks.data());
      std::minstd_rand random(seed + 7919 * index + 104729 * static_cast<unsigned>(schedule.rank));
      return TaskCost{.seconds = static_cast<double>(random() % 9)};
    };
    const Simulation result = simulate(classes(schedules), costs);
    EXPECT_EQ(result.seconds, slow_simulation(schedules, costs)) << "seed " << seed;
    for (const RankTimes& rank : result.ranks) {
      EXPECT_GE(rank.exposed, 0);
      EXPECT_GE(rank.bubble, 0);
      EXPECT_EQ(rank.compute + rank.exposed + rank.bubble, result.seconds);
    }
  }
}

TEST(Simulator, WritesTheTraceOfARealRun) {
  const auto schedules = schedule::testing::random_schedules(5);
  const Simulation result = simulate(
      classes(schedules), [](const Schedule&, const Task&) { return TaskCost{.seconds = 0.25, .bytes = 9}; },
      {.events = true});
  const auto json = nlohmann::json::parse(tracing::to_chrome_json(traces_of(result)));
  std::int64_t tasks = 0;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") == "X") {
      EXPECT_DOUBLE_EQ(event.at("dur"), 250'000.0);
      ++tasks;
    }
  }
  EXPECT_EQ(tasks, result.tasks);
}

std::string error_of(const std::vector<RankClass>& ranks, const TaskCosts& costs) {
  try {
    (void)simulate(ranks, costs);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Simulator, SaysWhatItCannotSimulate) {
  const auto schedules = schedule::testing::random_schedules(8);
  const auto ranks = classes(schedules);
  EXPECT_NE(error_of({ranks[0], ranks[0]}, layer_seconds).find("two of the schedules"), std::string::npos);
  EXPECT_NE(error_of({ranks[0]}, layer_seconds).find("not simulated"), std::string::npos);
  for (const double seconds :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const TaskCosts costs = [seconds](const Schedule&, const Task&) { return TaskCost{.seconds = seconds}; };
    EXPECT_NE(error_of(ranks, costs).find("is said to take"), std::string::npos);
  }
  EXPECT_NE(error_of(ranks, [](const Schedule&, const Task&) { return TaskCost{.link = 2}; }).find("link 2"),
            std::string::npos);

  Schedule circle;
  circle.tasks = {{.after = {1}}, {.stream = Stream::prefetch, .after = {0}}};
  EXPECT_NE(error_of({{&circle}}, layer_seconds).find("circle"), std::string::npos);

  std::vector<Schedule> apart(2);
  for (int rank = 0; rank < 2; ++rank) {
    Schedule& schedule = apart[static_cast<std::size_t>(rank)];
    schedule.rank = rank;
    schedule.groups = {{"red", {0, 1}}, {"blue", {0, 1}}};
    for (const int group : {rank, 1 - rank}) {
      schedule.tasks.push_back(
          {.op = Op::dispatch, .stream = Stream::intra, .communication = Communication{.group = group}});
    }
  }
  EXPECT_NE(error_of(classes(apart), layer_seconds).find("waits for ever"), std::string::npos);

  apart[1].tasks.clear();
  apart[0].tasks = {{.op = Op::send,
                     .stream = Stream::send_next,
                     .communication = Communication{.collective = Collective::send, .peer = 1}}};
  EXPECT_NE(error_of(classes(apart), layer_seconds).find("only one end"), std::string::npos);
  EXPECT_EQ(simulate({}, layer_seconds).seconds, 0.0);
}

}  // namespace
}  // namespace expedite::cost
