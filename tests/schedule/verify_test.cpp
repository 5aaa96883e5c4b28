// The verifier: sound schedules pass, and every way to break one is reported with its rank and task.
#include "expedite/schedule/verify.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <utility>

#include "tests/schedule/random_schedule.h"

namespace expedite::schedule {
namespace {

using testing::random_schedules;
using testing::RandomScheduleOptions;

std::string joined(const std::vector<std::string>& problems) {
  std::string text;
  for (const std::string& problem : problems) {
    text += problem + "\n";
  }
  return text;
}

void expect_sound(std::span<const Schedule> schedules) {
  const auto problems = verify(schedules);
  EXPECT_TRUE(problems.empty()) << joined(problems);
}

// Some problem must contain all of `parts`.
void expect_problem(std::span<const Schedule> schedules, const std::vector<std::string>& parts) {
  const auto problems = verify(schedules);
  const bool found = std::any_of(problems.begin(), problems.end(), [&](const std::string& problem) {
    return std::all_of(parts.begin(), parts.end(),
                       [&](const std::string& part) { return problem.find(part) != std::string::npos; });
  });
  std::string wanted;
  for (const std::string& part : parts) {
    wanted += "[" + part + "] ";
  }
  EXPECT_TRUE(found) << "no problem with " << wanted << "in:\n" << joined(problems);
}

std::string task_name(const Schedule& schedule, std::size_t task) {
  return fmt::format("rank {} task {} '{}'", schedule.rank, task, label(schedule.tasks[task]));
}

// Reachability by brute force, written for reading: reach[a][b] when a ends before b starts.
std::vector<std::vector<bool>> reachability(const Schedule& schedule) {
  const std::size_t n = schedule.tasks.size();
  std::vector<std::vector<bool>> reach(n, std::vector<bool>(n, false));
  for (std::size_t b = 0; b < n; ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      if (schedule.tasks[a].stream == schedule.tasks[b].stream) {
        reach[a][b] = true;
      }
    }
    for (const TaskId a : schedule.tasks[b].after) {
      reach[static_cast<std::size_t>(a)][b] = true;
    }
  }
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = 0; reach[a][k] && b < n; ++b) {
        if (reach[k][b]) {
          reach[a][b] = true;
        }
      }
    }
  }
  return reach;
}

bool buffers_ordered(const Schedule& schedule) {
  const auto reach = reachability(schedule);
  const std::size_t n = schedule.tasks.size();
  std::vector<std::size_t> acquire(schedule.buffers.size(), n);
  std::vector<std::size_t> release(schedule.buffers.size(), n);
  for (std::size_t task = 0; task < n; ++task) {
    for (const BufferId buffer : schedule.tasks[task].acquires) {
      acquire[static_cast<std::size_t>(buffer)] = task;
    }
    for (const BufferId buffer : schedule.tasks[task].releases) {
      release[static_cast<std::size_t>(buffer)] = task;
    }
  }
  const auto ordered = [&](std::size_t a, std::size_t b) { return a == b || reach[a][b]; };
  for (std::size_t task = 0; task < n; ++task) {
    for (const BufferId id : schedule.tasks[task].uses) {
      const auto buffer = static_cast<std::size_t>(id);
      if (!ordered(acquire[buffer], task) || !ordered(task, release[buffer])) {
        return false;
      }
    }
  }
  for (std::size_t buffer = 0; buffer < schedule.buffers.size(); ++buffer) {
    if (!ordered(acquire[buffer], release[buffer])) {
      return false;
    }
  }
  return true;
}

// The tasks of rank `rank` for which `predicate` holds.
template <typename Predicate>
std::vector<std::size_t> tasks_where(const Schedule& schedule, Predicate predicate) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < schedule.tasks.size(); ++i) {
    if (predicate(schedule.tasks[i])) {
      found.push_back(i);
    }
  }
  return found;
}

bool is_collective(const Task& task) {
  return task.communication && task.communication->collective != Collective::send &&
         task.communication->collective != Collective::receive;
}

TEST(Verify, RandomSoundSchedulesPass) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const RandomScheduleOptions options{.ranks = 1 + static_cast<int>(seed % 6),
                                        .events = static_cast<int>(seed)};
    expect_sound(random_schedules(seed, options));
  }
  expect_sound({});
}

TEST(Verify, AgreesWithBruteForceWhenADependencyIsDropped) {
  int unsound = 0;
  std::mt19937 random(7);
  for (unsigned seed = 0; seed < 150; ++seed) {
    auto schedules = random_schedules(seed, {.ranks = 2, .events = 30});
    Schedule& schedule = schedules[seed % 2];
    const auto candidates = tasks_where(schedule, [](const Task& task) { return !task.after.empty(); });
    ASSERT_FALSE(candidates.empty());
    Task& task = schedule.tasks[candidates[random() % candidates.size()]];
    const TaskId dropped = task.after[random() % task.after.size()];
    std::erase(task.after, dropped);
    const auto problems = verify(schedules);
    EXPECT_EQ(problems.empty(), buffers_ordered(schedule)) << joined(problems);
    if (!problems.empty()) {
      ++unsound;
      const auto prefix = fmt::format("rank {} task ", schedule.rank);
      for (const std::string& problem : problems) {
        EXPECT_EQ(problem.rfind(prefix, 0), 0U) << problem;
        EXPECT_NE(problem.find("buffer"), std::string::npos) << problem;
      }
    }
  }
  EXPECT_GT(unsound, 20);  // the mutation does break schedules, and not always
  EXPECT_LT(unsound, 150);
}

TEST(Verify, ReportsSwappedCollectives) {
  int swapped = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    auto schedules = random_schedules(seed);
    Schedule& schedule = schedules[1];
    const auto found = tasks_where(schedule, is_collective);
    for (std::size_t i = 0; i + 1 < found.size(); ++i) {
      Task& first = schedule.tasks[found[i]];
      Task& second = schedule.tasks[found[i + 1]];
      if (first.stream == second.stream && first.communication->group == second.communication->group) {
        std::swap(first.communication, second.communication);
        std::swap(first.layer, second.layer);
        // Rank 0 issues them in the other order; the first of rank 1 is named, with its place.
        expect_problem(schedules, {task_name(schedule, found[i]),
                                   std::string("stream ") + std::string(name_of(first.stream))});
        ++swapped;
        break;
      }
    }
  }
  EXPECT_GT(swapped, 10);
}

TEST(Verify, ReportsAnotherKindOfCollective) {
  auto schedules = random_schedules(3);
  Schedule& schedule = schedules[2];
  const std::size_t task = tasks_where(schedule, is_collective).front();
  Collective& collective = schedule.tasks[task].communication->collective;
  collective = collective == Collective::all_gather ? Collective::all_reduce : Collective::all_gather;
  expect_problem(schedules, {task_name(schedule, task), std::string(name_of(collective))});
}

TEST(Verify, ReportsDroppedSendsAndReceives) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    auto schedules = random_schedules(seed);
    const Collective dropped = seed % 2 == 0 ? Collective::send : Collective::receive;
    Schedule& schedule = schedules[seed % 4];
    const auto found = tasks_where(schedule, [&](const Task& task) {
      return task.communication && task.communication->collective == dropped;
    });
    if (found.empty()) {
      continue;
    }
    Task& task = schedule.tasks[found.back()];
    const int peer = task.communication->peer;
    const int micro_batch = task.micro_batch;
    task.communication.reset();
    task.stream = Stream::compute;
    const Schedule& other = schedules[static_cast<std::size_t>(peer)];
    const auto counterpart = tasks_where(other, [&](const Task& candidate) {
      return candidate.communication && candidate.communication->peer == schedule.rank &&
             candidate.micro_batch == micro_batch;
    });
    ASSERT_EQ(counterpart.size(), 1U);
    expect_problem(schedules, {task_name(other, counterpart.front()), fmt::format("rank {}", schedule.rank)});
  }
}

TEST(Verify, ReportsMessagesInAnotherOrder) {
  std::vector<Schedule> schedules(2);
  for (int rank = 0; rank < 2; ++rank) {
    Schedule& schedule = schedules[static_cast<std::size_t>(rank)];
    schedule.rank = rank;
    schedule.groups = {{"world", {0, 1}}};
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      schedule.tasks.push_back(
          {.stream = Stream::inter,
           .micro_batch = rank == 0 ? micro_batch : 1 - micro_batch,
           .communication = Communication{.collective = rank == 0 ? Collective::send : Collective::receive,
                                          .peer = 1 - rank}});
    }
  }
  expect_problem(schedules, {"rank 0 task 0", "rank 1 task 0", "not the same message"});
}

TEST(Verify, ReportsACollectiveOnAnotherStream) {
  auto schedules = random_schedules(5);
  Schedule& schedule = schedules[3];
  const std::size_t task = tasks_where(schedule, is_collective).front();
  Stream& stream = schedule.tasks[task].stream;
  stream = stream == Stream::intra ? Stream::inter : Stream::intra;
  const auto problems = verify(schedules);
  ASSERT_FALSE(problems.empty());
  EXPECT_NE(joined(problems).find("rank 3"), std::string::npos) << joined(problems);
}

TEST(Verify, ReportsCommunicationOffItsStreamsAndWorkOnThem) {
  auto schedules = random_schedules(5);
  const std::size_t collective = tasks_where(schedules[0], is_collective).front();
  schedules[0].tasks[collective].stream = Stream::compute;
  const std::size_t work =
      tasks_where(schedules[1], [](const Task& task) { return !task.communication; }).front();
  schedules[1].tasks[work].stream = Stream::reduce;
  expect_problem(schedules, {task_name(schedules[0], collective), "communicates", "compute"});
  expect_problem(schedules, {task_name(schedules[1], work), "does not communicate", "reduce"});
}

TEST(Verify, ReportsStrangersInAGroup) {
  auto schedules = random_schedules(5);
  schedules[2].groups[1].ranks = {0, 1};  // rank 2 is no member
  const auto found = tasks_where(
      schedules[2], [](const Task& task) { return task.communication && task.communication->group == 1; });
  ASSERT_FALSE(found.empty());
  expect_problem(schedules, {task_name(schedules[2], found.front()), "pair", "no member"});
}

TEST(Verify, ReportsRanksThatDisagreeOnAGroup) {
  auto schedules = random_schedules(5);
  schedules[2].groups[0].ranks = {1, 2, 3};
  EXPECT_NE(joined(verify(schedules)).find("group world"), std::string::npos);
  schedules[2].groups[0].ranks = {3, 2, 1, 0};
  expect_problem(schedules, {"rank 2 group world", "ascending"});
  schedules[2].groups[0].ranks = {0, 1, 2, 3, 4};
  expect_problem(schedules, {"rank 2 group world", "no rank 4"});
  schedules[2].groups[1].name = "world";
  expect_problem(schedules, {"rank 2", "two groups named world"});
}

TEST(Verify, ReportsAPeerOutsideTheGroup) {
  auto schedules = random_schedules(8);
  const auto sends = tasks_where(schedules[0], [](const Task& task) {
    return task.communication && task.communication->collective == Collective::send;
  });
  ASSERT_FALSE(sends.empty());
  Communication& communication = *schedules[0].tasks[sends.front()].communication;
  for (const int peer : {0, 4, -1}) {
    communication.peer = peer;
    expect_problem(schedules, {task_name(schedules[0], sends.front()), fmt::format("peer {}", peer)});
  }
}

TEST(Verify, ReportsIdsThatDoNotExist) {
  auto schedules = random_schedules(9);
  Schedule& schedule = schedules[1];
  schedule.tasks[3].after.push_back(static_cast<TaskId>(schedule.tasks.size()));
  schedule.tasks[4].uses.push_back(-1);
  schedule.tasks[tasks_where(schedule, is_collective).front()].communication->group = 2;
  schedules[0].rank = 1;
  expect_problem(schedules, {task_name(schedule, 3), "depends on task"});
  expect_problem(schedules, {task_name(schedule, 4), "buffer -1"});
  expect_problem(schedules, {task_name(schedule, tasks_where(schedule, is_collective).front()), "group 2"});
  expect_problem(schedules, {"schedule 0", "rank 1"});
}

TEST(Verify, ReportsACircleOfDependencies) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    auto schedules = random_schedules(seed, {.ranks = 3, .events = 40});
    Schedule& schedule = schedules[seed % 3];
    const auto last = static_cast<TaskId>(schedule.tasks.size()) - 1;
    schedule.tasks[0].after.push_back(last);  // the last one is on the compute stream
    schedule.tasks[static_cast<std::size_t>(last)].after.push_back(0);
    expect_problem(schedules, {fmt::format("rank {} task 0 ", schedule.rank),
                               fmt::format("rank {} task {} ", schedule.rank, last), "circle"});
  }
}

TEST(Verify, ReportsATaskThatDependsOnItself) {
  auto schedules = random_schedules(2);
  schedules[0].tasks[2].after.push_back(2);
  expect_problem(schedules, {task_name(schedules[0], 2), "circle"});
}

// Two ranks enter two groups in opposite order, each on a stream of its own: locally fine, together stuck.
TEST(Verify, ReportsADeadlockAcrossRanks) {
  std::vector<Schedule> schedules(2);
  for (int rank = 0; rank < 2; ++rank) {
    Schedule& schedule = schedules[static_cast<std::size_t>(rank)];
    schedule.rank = rank;
    schedule.groups = {{"red", {0, 1}}, {"blue", {0, 1}}};
    const bool red_first = rank == 0;
    const std::array order = {red_first ? 0 : 1, red_first ? 1 : 0};
    for (const int group : order) {
      schedule.tasks.push_back({.op = Op::dispatch,
                                .stream = group == 0 ? Stream::intra : Stream::inter,
                                .layer = group,
                                .communication = Communication{.group = group}});
    }
  }
  expect_sound(schedules);  // streams are independent: both orders of issue are fine
  for (Schedule& schedule : schedules) {
    schedule.tasks[1].after = {0};
  }
  expect_problem(schedules, {"circle", "rank 0 task", "rank 1 task"});
}

// The same with one stream, where the stream's order alone makes the circle.
TEST(Verify, ReportsOppositeOrdersOfTwoGroupsOnOneStream) {
  std::vector<Schedule> schedules(2);
  for (int rank = 0; rank < 2; ++rank) {
    schedules[static_cast<std::size_t>(rank)].rank = rank;
    schedules[static_cast<std::size_t>(rank)].groups = {{"red", {0, 1}}, {"blue", {0, 1}}};
    for (int i = 0; i < 2; ++i) {
      const int group = rank == 0 ? i : 1 - i;
      schedules[static_cast<std::size_t>(rank)].tasks.push_back(
          {.stream = Stream::intra, .layer = group, .communication = Communication{.group = group}});
    }
  }
  expect_problem(schedules, {"circle", "rank 0 task", "rank 1 task"});
}

TEST(Verify, ReportsBuffersAcquiredOrReleasedTwiceOrNever) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    const auto sound = random_schedules(seed);
    const auto with_release = tasks_where(sound[1], [](const Task& task) { return !task.releases.empty(); });
    const auto with_acquire = tasks_where(sound[1], [](const Task& task) { return !task.acquires.empty(); });
    ASSERT_FALSE(with_release.empty());
    const std::size_t last = sound[1].tasks.size() - 1;
    const BufferId released = sound[1].tasks[with_release.front()].releases.front();
    const BufferId acquired = sound[1].tasks[with_acquire.front()].acquires.front();

    auto twice = sound;
    twice[1].tasks[last].releases.push_back(released);
    expect_problem(twice,
                   {task_name(sound[1], last), fmt::format("buffer {},", released), "released 2 times"});

    auto again = sound;
    again[1].tasks[last].acquires.push_back(acquired);
    expect_problem(again,
                   {task_name(sound[1], last), fmt::format("buffer {},", acquired), "acquired 2 times"});

    auto never = sound;
    std::erase(never[1].tasks[with_release.front()].releases, released);
    expect_problem(never, {"rank 1 task", fmt::format("buffer {},", released), "released 0 times"});

    auto unacquired = sound;
    std::erase(unacquired[1].tasks[with_acquire.front()].acquires, acquired);
    expect_problem(unacquired, {"rank 1 task", fmt::format("buffer {},", acquired), "acquired 0 times"});
  }
}

TEST(Verify, ReportsUseAfterRelease) {
  Schedule schedule;
  schedule.buffers.resize(1);
  schedule.tasks.push_back({.acquires = {0}});
  schedule.tasks.push_back({.releases = {0}});
  schedule.tasks.push_back({.uses = {0}});
  expect_problem(std::array{schedule}, {"rank 0 task 2", "buffer 0", "task 1", "after"});
}

TEST(Verify, TakesLargeJobs) {
  // 100,000 tasks in all. Quadratic work in tasks would not end within the test's time limit.
  auto schedules = random_schedules(11, {.ranks = 8, .events = 40000, .live_buffers = 8});
  std::size_t tasks = 0;
  for (const Schedule& schedule : schedules) {
    tasks += schedule.tasks.size();
  }
  EXPECT_GT(tasks, 90000U);
  expect_sound(schedules);
  schedules[7].tasks[100].after.push_back(static_cast<TaskId>(schedules[7].tasks.size()) - 1);
  expect_problem(schedules, {"rank 7 task 100 ", "circle"});
}

TEST(ForecastMemory, FollowsTheBuffers) {
  Schedule schedule;
  schedule.buffers = {{.category = MemoryCategory::activations, .expected_bytes = 100},
                      {.category = MemoryCategory::communication, .expected_bytes = 30},
                      {.category = MemoryCategory::activations, .expected_bytes = 50}};
  schedule.tasks = {
      {.acquires = {0}}, {.acquires = {1}, .releases = {0}}, {.acquires = {2}, .releases = {1, 2}}};
  const MemoryForecast forecast = forecast_memory(schedule);
  EXPECT_EQ(forecast.peak[static_cast<std::size_t>(MemoryCategory::activations)], 100);
  EXPECT_EQ(forecast.peak[static_cast<std::size_t>(MemoryCategory::communication)], 30);
  EXPECT_EQ(forecast.peak[static_cast<std::size_t>(MemoryCategory::weights)], 0);
  EXPECT_EQ(forecast.total_peak, 130);  // both sides of the second task, held at once
  EXPECT_EQ(forecast_memory({}).total_peak, 0);
}

TEST(ForecastMemory, FollowsDependenciesAgainstTheOrderOfTheList) {
  Schedule schedule;
  schedule.buffers = {{.expected_bytes = 8}};
  schedule.tasks = {{.stream = Stream::prefetch, .after = {1}, .releases = {0}}, {.acquires = {0}}};
  EXPECT_EQ(forecast_memory(schedule).total_peak, 8);
  schedule.tasks[1].after = {0};
  EXPECT_THROW((void)forecast_memory(schedule), Error);
}

// What one rank can see by itself: sound ones pass, whatever is wrong with them alone is found.
TEST(VerifyAlone, FindsWhatIsWrongWithOneRank) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<Schedule> schedules = random_schedules(seed);
    for (const Schedule& each : schedules) {
      EXPECT_EQ(verify_alone(each, 4), std::vector<std::string>{});
    }
  }
  Schedule schedule;
  schedule.rank = 2;
  schedule.groups = {{"world", {0, 1, 2, 3}}};
  schedule.buffers.resize(1);
  schedule.tasks = {{.acquires = {0}}, {.op = Op::loss, .releases = {0}}};
  EXPECT_EQ(verify_alone(schedule, 4), std::vector<std::string>{});
  EXPECT_NE(joined(verify_alone(schedule, 3)).find("there is no rank 3"), std::string::npos);
  EXPECT_NE(joined(verify_alone(schedule, 2)).find("there is no rank 2 among 2"), std::string::npos);
  Schedule circle = schedule;
  circle.tasks[0].after = {1};
  EXPECT_NE(joined(verify_alone(circle, 4)).find("circle"), std::string::npos);
  EXPECT_NE(joined(verify_alone(circle, 4)).find("rank 2 task 1 'loss forward'"), std::string::npos)
      << joined(verify_alone(circle, 4));
  Schedule leak = schedule;
  leak.tasks[1].releases.clear();
  EXPECT_NE(joined(verify_alone(leak, 4)).find("released 0 times"), std::string::npos);
}

}  // namespace
}  // namespace expedite::schedule
