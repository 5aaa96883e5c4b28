// The executor: order, overlap, buffers and threads.
#include "expedite/runtime/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "expedite/base/error.h"
#include "expedite/schedule/builders.h"
#include "tests/runtime/scripted_runner.h"
#include "tests/schedule/random_schedule.h"
#include "tests/schedule/step_specs.h"

namespace expedite::runtime {
namespace {

using schedule::BufferId;
using schedule::Communication;
using schedule::Op;
using schedule::Schedule;
using schedule::Stream;
using schedule::Task;
using testing::PendingUntil;
using testing::ScriptedRunner;

/// Runs a random schedule and checks, task by task, that what must come before is done. Buffers carry their
/// own number, written without synchronisation by whoever acquires them: only the executor orders the
/// readers.
class CheckingRunner final : public TaskRunner {
 public:
  explicit CheckingRunner(const Schedule& schedule)
      : schedule_(schedule), done_(schedule.tasks.size()), predecessor_(schedule.tasks.size(), -1) {
    std::array<int, schedule::kStreams> last{};
    last.fill(-1);
    for (std::size_t i = 0; i < schedule.tasks.size(); ++i) {
      int& previous = last[static_cast<std::size_t>(schedule.tasks[i].stream)];
      predecessor_[i] = std::exchange(previous, static_cast<int>(i));
    }
  }

  [[nodiscard]] std::int64_t bytes(const schedule::LogicalBuffer& buffer) override {
    return static_cast<std::int64_t>(sizeof(BufferId)) + buffer.expected_bytes;
  }

  void run(const Task& task, BufferTable& buffers) override {
    const std::size_t id = begin(task, buffers);
    check_buffers(task, buffers);
    done_[id] = true;
  }

  std::unique_ptr<PendingCommunication> start(const Task& task, BufferTable& buffers) override {
    const std::size_t id = begin(task, buffers);
    if (id % 4 == 0) {
      done_[id] = true;
      return nullptr;
    }
    // The reference outlives start(): the table is this task's until it ends.
    return std::make_unique<PendingUntil>([this, id, &task, &buffers, tests = 0]() mutable {
      check_buffers(task, buffers);
      if (++tests < static_cast<int>(id % 3) + 1) {
        return false;
      }
      done_[id] = true;
      return true;
    });
  }

  void expect_all_done() const {
    EXPECT_TRUE(std::all_of(done_.begin(), done_.end(), [](const auto& done) { return done.load(); }));
    EXPECT_EQ(violations_, 0);
  }

 private:
  std::size_t begin(const Task& task, BufferTable& buffers) {
    const auto id = static_cast<std::size_t>(&task - schedule_.tasks.data());
    violations_ += done_[id] ? 1 : 0;
    violations_ += predecessor_[id] >= 0 && !done_[static_cast<std::size_t>(predecessor_[id])] ? 1 : 0;
    for (const schedule::TaskId earlier : task.after) {
      violations_ += done_[static_cast<std::size_t>(earlier)] ? 0 : 1;
    }
    for (const BufferId buffer : task.acquires) {
      std::memcpy(buffers[buffer].data(), &buffer, sizeof(buffer));
    }
    return id;
  }

  void check_buffers(const Task& task, BufferTable& buffers) {
    for (const auto* list : {&task.acquires, &task.uses, &task.releases}) {
      for (const BufferId buffer : *list) {
        BufferId written = -1;
        std::memcpy(&written, buffers[buffer].data(), sizeof(written));
        violations_ += written == buffer ? 0 : 1;
        violations_ +=
            buffers[buffer].bytes() == bytes(schedule_.buffers[static_cast<std::size_t>(buffer)]) ? 0 : 1;
      }
    }
  }

  const Schedule& schedule_;
  std::vector<std::atomic<bool>> done_;
  std::vector<int> predecessor_;
  std::atomic<int> violations_ = 0;
};

TEST(Executor, RespectsOrderInAThousandRandomRuns) {
  MemoryPool pool;
  tracing::TraceRecorder trace(2);
  Executor executor(pool, {.trace = &trace});
  for (unsigned seed = 0; seed < 50; ++seed) {
    const Schedule schedule =
        schedule::testing::random_schedules(seed, {.ranks = 1, .events = static_cast<int>(seed)}).front();
    for (int repeat = 0; repeat < 20; ++repeat) {
      CheckingRunner runner(schedule);
      executor.run(schedule, runner);
      runner.expect_all_done();
      ASSERT_EQ(pool.current_bytes(), 0);
    }
    EXPECT_LE(trace.events().size(), 2 * schedule.tasks.size());
  }
  EXPECT_EQ(trace.statistics().step, 999);
}

TEST(Executor, RunsAnEmptySchedule) {
  MemoryPool pool;
  Executor executor(pool, {});
  ScriptedRunner runner;
  executor.run({}, runner);
}

// Each side waits for the other: only overlap gets through.
TEST(Executor, CommunicatesWhileItComputes) {
  Schedule schedule;
  schedule.groups = {{"ep", {0, 1}}};
  schedule.tasks = {{.op = Op::dispatch, .stream = Stream::intra, .communication = Communication{}},
                    {.op = Op::experts},
                    {.op = Op::unpermute, .after = {0}}};
  MemoryPool pool;
  Executor executor(pool, {});
  ScriptedRunner runner;
  std::atomic<bool> in_flight = false;
  std::atomic<bool> computed = false;
  std::atomic<bool> communicated = false;
  runner.on_run = [&](const Task& task, BufferTable&) {
    if (task.op == Op::experts) {
      in_flight.wait(false);
      EXPECT_FALSE(communicated);
      computed = true;
    } else {
      EXPECT_TRUE(communicated);
    }
  };
  runner.on_start = [&](const Task&, BufferTable&) {
    in_flight = true;
    in_flight.notify_all();
    return std::make_unique<PendingUntil>([&] {
      communicated = computed.load();
      return communicated.load();
    });
  };
  executor.run(schedule, runner);
  EXPECT_TRUE(communicated);
}

TEST(Executor, HasSeveralCommunicationStreamsInFlightButOneTaskEach) {
  Schedule schedule;
  schedule.groups = {{"ep", {0, 1}}};
  for (const Stream stream : {Stream::intra, Stream::intra, Stream::inter, Stream::reduce}) {
    schedule.tasks.push_back({.stream = stream, .communication = Communication{}});
  }
  MemoryPool pool;
  Executor executor(pool, {});
  ScriptedRunner runner;
  std::multiset<Stream> in_flight;
  std::size_t most = 0;
  runner.on_start = [&](const Task& task, BufferTable&) {
    EXPECT_EQ(in_flight.count(task.stream), 0U);
    in_flight.insert(task.stream);
    most = std::max(most, in_flight.size());
    return std::make_unique<PendingUntil>([&, stream = task.stream] {
      if (most < 3) {
        return false;
      }
      in_flight.erase(stream);
      return true;
    });
  };
  executor.run(schedule, runner);
  EXPECT_EQ(most, 3U);
}

// Compute and prefetch wait for each other's start.
TEST(Executor, PrefetchesWhileItComputes) {
  Schedule schedule;
  schedule.tasks = {{.stream = Stream::compute}, {.stream = Stream::prefetch}};
  MemoryPool pool;
  Executor executor(pool, {});
  ScriptedRunner none;
  executor.run({}, none);  // the prefetch thread starts later than the compute thread
  for (int repeat = 0; repeat < 20; ++repeat) {
    ScriptedRunner runner;
    std::atomic<int> started = 0;
    runner.on_run = [&](const Task&, BufferTable&) {
      ++started;
      started.notify_all();
      for (int seen = started; seen < 2; seen = started) {
        started.wait(seen);
      }
    };
    executor.run(schedule, runner);
    EXPECT_EQ(started, 2);
  }
}

TEST(Executor, KeepsThreadsApart) {
  Schedule schedule;
  schedule.groups = {{"ep", {0, 1}}};
  schedule.tasks = {{.stream = Stream::compute},
                    {.stream = Stream::prefetch, .after = {0}},
                    {.stream = Stream::intra, .after = {1}, .communication = Communication{}},
                    {.stream = Stream::inter, .after = {2}, .communication = Communication{}},
                    {.stream = Stream::compute, .after = {3}}};
  MemoryPool pool;
  std::vector<std::thread::id> set_up;
  std::atomic<int> polls = 0;
  Executor executor(pool, {.poll = [&] { ++polls; },
                           .compute_thread_setup = [&] { set_up.push_back(std::this_thread::get_id()); }});
  std::array<std::set<std::thread::id>, schedule::kStreams> threads;
  ScriptedRunner runner;
  runner.on_run = [&](const Task& task, BufferTable&) {
    threads[static_cast<std::size_t>(task.stream)].insert(std::this_thread::get_id());
  };
  runner.on_start = [&](const Task& task, BufferTable&) {
    threads[static_cast<std::size_t>(task.stream)].insert(std::this_thread::get_id());
    return nullptr;
  };
  for (int step = 0; step < 3; ++step) {
    executor.run(schedule, runner);
  }
  const std::set<std::thread::id> caller = {std::this_thread::get_id()};
  EXPECT_EQ(threads[static_cast<std::size_t>(Stream::intra)], caller);
  EXPECT_EQ(threads[static_cast<std::size_t>(Stream::inter)], caller);
  ASSERT_EQ(set_up.size(), 1U);
  EXPECT_EQ(threads[static_cast<std::size_t>(Stream::compute)], std::set{set_up.front()});
  EXPECT_EQ(threads[static_cast<std::size_t>(Stream::prefetch)].size(), 1U);
  EXPECT_NE(threads[static_cast<std::size_t>(Stream::prefetch)], caller);
  EXPECT_NE(threads[static_cast<std::size_t>(Stream::prefetch)], std::set{set_up.front()});
  EXPECT_GE(polls, 3);
}

TEST(Executor, PollsWhileNothingIsInFlight) {
  Schedule schedule;
  schedule.tasks = {{.stream = Stream::compute}};
  MemoryPool pool;
  std::atomic<int> polls = 0;
  Executor executor(pool, {.poll =
                               [&] {
                                 ++polls;
                                 polls.notify_all();
                               },
                           .poll_interval = std::chrono::milliseconds(1)});
  ScriptedRunner runner;
  runner.on_run = [&](const Task&, BufferTable&) {
    for (int seen = polls; seen < 5; seen = polls) {
      polls.wait(seen);
    }
  };
  executor.run(schedule, runner);
  EXPECT_GE(polls, 5);
}

TEST(Executor, AccountsBuffersByCategory) {
  Schedule schedule;
  schedule.buffers = {{.category = MemoryCategory::activations, .expected_bytes = 100},
                      {.category = MemoryCategory::communication, .expected_bytes = 0},
                      {.category = MemoryCategory::workspace, .expected_bytes = 7}};
  schedule.tasks = {
      {.acquires = {0, 1}}, {.acquires = {2}, .uses = {0}, .releases = {1}}, {.releases = {0, 2}}};
  MemoryPool pool;
  Executor executor(pool, {});
  ScriptedRunner runner;
  std::vector<std::int64_t> held;
  runner.on_bytes = [](const schedule::LogicalBuffer& buffer) { return 2 * buffer.expected_bytes; };
  runner.on_run = [&](const Task&, BufferTable&) { held.push_back(pool.current_bytes()); };
  executor.run(schedule, runner);
  EXPECT_EQ(held, (std::vector<std::int64_t>{200, 214, 214}));
  EXPECT_EQ(pool.peak_bytes(MemoryCategory::activations), 200);
  EXPECT_EQ(pool.peak_bytes(MemoryCategory::workspace), 14);
  EXPECT_EQ(pool.current_bytes(), 0);
}

TEST(Executor, ReportsWhatStreamsDo) {
  Schedule schedule;
  schedule.groups = {{"ep", {0, 1}}};
  schedule.tasks = {{.op = Op::dispatch,
                     .stream = Stream::intra,
                     .layer = 3,
                     .micro_batch = 0,
                     .communication = Communication{}},
                    {.op = Op::router, .layer = 3},
                    {.op = Op::experts, .layer = 3, .micro_batch = 0, .after = {0, 1}},
                    {.op = Op::combine,
                     .stream = Stream::inter,
                     .layer = 3,
                     .after = {2},
                     .communication = Communication{}}};
  MemoryPool pool;
  Executor executor(pool, {});
  EXPECT_EQ(to_string(executor.status()), "no step is running");
  ScriptedRunner runner;
  std::atomic<bool> in_flight = false;
  std::atomic<bool> reported = false;
  runner.on_run = [&](const Task& task, BufferTable&) {
    if (task.op == Op::router) {
      in_flight.wait(false);
      const Status status = executor.status();  // from another thread than the one that runs the step
      EXPECT_EQ(status[0].activity, Activity::running);
      EXPECT_EQ(status[0].task, "L3 router forward");
      EXPECT_FALSE(status[1].in_schedule);
      EXPECT_EQ(status[2].activity, Activity::in_flight);
      EXPECT_EQ(status[2].task, "L3 mb0 dispatch forward");
      EXPECT_EQ(status[2].group, "ep");
      EXPECT_EQ(status[3].activity, Activity::waiting);
      EXPECT_EQ(status[3].waits_for, "L3 mb0 experts forward");
      EXPECT_EQ(status[3].waits_for_stream, "compute");
      reported = true;
    }
  };
  runner.on_start = [&](const Task&, BufferTable&) {
    in_flight = true;
    in_flight.notify_all();
    return std::make_unique<PendingUntil>([&] { return reported.load(); });
  };
  executor.run(schedule, runner);
  EXPECT_TRUE(reported);
  EXPECT_EQ(to_string(executor.status()), "no step is running");
}

TEST(Executor, RecordsEveryTaskOfAStep) {
  Schedule schedule;
  schedule.groups = {{"ep", {0, 1}}};
  schedule.tasks = {
      {.op = Op::dispatch, .stream = Stream::intra, .communication = Communication{}},
      {.op = Op::experts, .after = {0}},
      {.op = Op::combine, .stream = Stream::intra, .after = {1}, .communication = Communication{}}};
  MemoryPool pool;
  tracing::TraceRecorder recorder;
  Executor executor(pool, {.trace = &recorder});
  ScriptedRunner runner;
  runner.on_start = [](const Task&, BufferTable&) {
    return std::make_unique<PendingUntil>([tests = 0]() mutable { return ++tests == 2; }, 12);
  };
  executor.run(schedule, runner);
  const auto events = recorder.events();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].op, Op::dispatch);
  EXPECT_EQ(events[0].bytes, 12);
  EXPECT_EQ(events[1].op, Op::experts);
  EXPECT_GT(events[1].exposed, 0);
  EXPECT_LE(events[1].exposed, events[1].wait);
  EXPECT_LE(events[0].end, events[1].begin);
  EXPECT_LE(events[1].end, events[2].begin);
  const tracing::StepStatistics statistics = recorder.statistics();
  EXPECT_EQ(statistics.bytes, 24);
  EXPECT_GE(statistics.exposed_communication, events[1].exposed + events[2].end - events[2].begin);
  EXPECT_LE(statistics.exposed_communication + statistics.compute_busy, statistics.wall);
}

TEST(BufferTable, KeepsToWhatTheTaskNames) {
  MemoryPool pool;
  BufferStore store(3);
  const Task task{.op = Op::experts, .layer = 2, .acquires = {0}, .uses = {1}};
  store.acquire(0, pool.allocate(8, MemoryCategory::activations), task);
  BufferTable window = store.window(task);
  EXPECT_EQ(window[0].bytes(), 8);
  EXPECT_THROW((void)window[1], Error);  // not held
  EXPECT_THROW((void)window[2], Error);  // not named
  EXPECT_THROW(store.acquire(0, Buffer(), task), Error);
  EXPECT_THROW(store.release(1, task), Error);
  store.release(0, task);
  EXPECT_THROW((void)window[0], Error);
  EXPECT_EQ(pool.current_bytes(), 0);
}

// On one rank of a job of one node and of two, with streams, buffers and messages as builders make them.
TEST(Executor, RunsWhatEveryRegisteredBuilderBuilds) {
  for (const auto builders : {schedule::step_builders(), schedule::layer_builders()}) {
    for (const schedule::Builder& builder : builders) {
      for (const std::vector<int>& nodes : {std::vector<int>{4}, std::vector<int>{2, 2}}) {
        schedule::StepSpec spec = schedule::spec_of(1, 4, 4, {true, true}, nodes);
        spec.micro_batches = 3;
        spec.ep_plan.dispatcher = schedule::Dispatcher::hierarchical_dedup;
        const Schedule built = build(builder, spec);
        MemoryPool pool;
        Executor executor(pool, {});
        std::atomic<std::size_t> ran = 0;
        ScriptedRunner runner;
        runner.on_run = [&](const Task&, BufferTable&) { ++ran; };
        runner.on_start = [&](const Task&, BufferTable&) -> std::unique_ptr<PendingCommunication> {
          ++ran;
          return nullptr;
        };
        executor.run(built, runner);
        EXPECT_EQ(ran, built.tasks.size()) << builder.name;
        EXPECT_EQ(pool.current_bytes(), 0) << builder.name;
      }
    }
  }
}

}  // namespace
}  // namespace expedite::runtime
