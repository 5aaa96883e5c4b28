// What the executor does when something goes wrong: it says what, and it stops; it never hangs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "expedite/base/error.h"
#include "expedite/runtime/executor.h"
#include "tests/runtime/scripted_runner.h"

namespace expedite::runtime {
namespace {

using schedule::Communication;
using schedule::Op;
using schedule::Schedule;
using schedule::Stream;
using schedule::Task;
using testing::PendingUntil;
using testing::ScriptedRunner;

/// Compute work, a reduction in flight, experts that wait for a dispatch, and a prefetch, all holding
/// buffers.
Schedule busy_schedule() {
  Schedule schedule;
  schedule.groups = {{"world", {0, 1}}, {"ep", {0, 1}}};
  schedule.buffers.resize(4, {.expected_bytes = 64});
  schedule.tasks = {{.op = Op::reduce_dense,
                     .stream = Stream::reduce,
                     .layer = 9,
                     .communication = Communication{},
                     .acquires = {0}},
                    {.op = Op::permute, .layer = 3, .micro_batch = 0, .acquires = {1}},
                    {.op = Op::embedding, .stream = Stream::prefetch, .acquires = {3}},
                    {.op = Op::dispatch,
                     .stream = Stream::intra,
                     .layer = 3,
                     .micro_batch = 0,
                     .after = {1},
                     .communication = Communication{.group = 1},
                     .acquires = {2}},
                    {.op = Op::experts, .layer = 3, .micro_batch = 0, .after = {2, 3}, .releases = {1, 2, 3}},
                    {.op = Op::optimizer, .after = {0}, .releases = {0}}};
  return schedule;
}

std::unique_ptr<PendingCommunication> never() {
  return std::make_unique<PendingUntil>([] { return false; });
}

std::string error_of(Executor& executor, const Schedule& schedule, TaskRunner& runner) {
  try {
    executor.run(schedule, runner);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class Failures : public ::testing::Test {
 protected:
  // After every failure: nothing held, and the executor still works.
  void TearDown() override {
    EXPECT_EQ(pool_.current_bytes(), 0);
    ScriptedRunner sound;
    EXPECT_EQ(error_of(executor_, busy_schedule(), sound), "no error");
    EXPECT_EQ(pool_.current_bytes(), 0);
  }

  std::string run(const Schedule& schedule = busy_schedule()) {
    return error_of(executor_, schedule, runner_);
  }

  MemoryPool pool_;
  std::function<void()> on_poll_;
  std::function<void()> on_setup_;
  Executor executor_{pool_,
                     {.poll =
                          [this] {
                            if (on_poll_) {
                              std::exchange(on_poll_, nullptr)();
                            }
                          },
                      .poll_interval = std::chrono::milliseconds(1),
                      .compute_thread_setup =
                          [this] {
                            if (on_setup_) {
                              std::exchange(on_setup_, nullptr)();
                            }
                          }}};
  ScriptedRunner runner_;
};

TEST_F(Failures, InAComputeTaskWhileCommunicationNeverEnds) {
  runner_.on_start = [](const Task& task, BufferTable&) {
    return task.op == Op::reduce_dense ? never() : nullptr;
  };
  runner_.on_run = [](const Task& task, BufferTable&) {
    if (task.op == Op::experts) {
      fail("router logit is NaN");
    }
  };
  EXPECT_EQ(run(), "L3 mb0 experts forward: router logit is NaN");
}

TEST_F(Failures, InAPrefetchTask) {
  runner_.on_start = [](const Task&, BufferTable&) { return never(); };
  runner_.on_run = [](const Task& task, BufferTable&) {
    if (task.stream == Stream::prefetch) {
      throw std::runtime_error("no memory");
    }
  };
  EXPECT_EQ(run(), "embedding forward: no memory");
}

TEST_F(Failures, InStartingCommunication) {
  runner_.on_start = [](const Task& task, BufferTable&) -> std::unique_ptr<PendingCommunication> {
    if (task.op == Op::dispatch) {
      fail("MPI_Isend failed");
    }
    return never();
  };
  EXPECT_EQ(run(), "L3 mb0 dispatch forward: MPI_Isend failed");
}

TEST_F(Failures, InCommunicationUnderWay) {
  runner_.on_start = [](const Task& task, BufferTable&) {
    return task.op != Op::dispatch
               ? never()
               : std::make_unique<PendingUntil>([]() -> bool { throw std::runtime_error("link down"); });
  };
  EXPECT_EQ(run(), "L3 mb0 dispatch forward: link down");
}

TEST_F(Failures, WithSomethingThatIsNoException) {
  runner_.on_run = [](const Task& task, BufferTable&) {
    if (task.op == Op::permute) {
      throw 7;  // NOLINT: what a careless library might do
    }
  };
  EXPECT_EQ(run(), "L3 mb0 permute forward: an exception that is no std::exception");
}

TEST_F(Failures, InTheSizeOfABuffer) {
  runner_.on_bytes = [](const schedule::LogicalBuffer&) -> std::int64_t { fail("no size yet"); };
  EXPECT_NE(run().find(": no size yet"), std::string::npos);
}

TEST_F(Failures, InTheSizeOfABufferBeingNegative) {
  runner_.on_bytes = [](const schedule::LogicalBuffer&) { return -1; };
  EXPECT_NE(run().find("cannot allocate -1 bytes"), std::string::npos);
}

TEST_F(Failures, InThePoll) {
  runner_.on_start = [](const Task&, BufferTable&) { return never(); };
  on_poll_ = [] { fail("rank 2 failed"); };
  EXPECT_EQ(run(), "rank 2 failed");
}

TEST_F(Failures, InTheSetUpOfTheComputeThread) {
  runner_.on_start = [](const Task&, BufferTable&) { return never(); };
  on_setup_ = [] { fail("no such core"); };
  EXPECT_EQ(run(), "setting up the compute thread: no such core");
}

TEST_F(Failures, InTouchingAnotherTasksBuffer) {
  runner_.on_run = [](const Task& task, BufferTable& buffers) {
    if (task.op == Op::permute) {
      (void)buffers[0];
    }
  };
  EXPECT_EQ(run(),
            "L3 mb0 permute forward: L3 mb0 permute forward touches buffer 0, which it neither acquires, "
            "uses nor releases");
}

TEST_F(Failures, OnSeveralStreamsAtOnceReportTheFirst) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    runner_.on_run = [](const Task&, BufferTable&) { fail("compute"); };
    runner_.on_start = [](const Task&, BufferTable&) -> std::unique_ptr<PendingCommunication> {
      fail("network");
    };
    const std::string error = run();
    EXPECT_TRUE(error.ends_with(": compute") || error.ends_with(": network")) << error;
  }
}

TEST_F(Failures, OfAScheduleThatGoesRoundInACircle) {
  Schedule schedule = busy_schedule();
  schedule.tasks[1].after = {4};
  EXPECT_EQ(
      run(schedule),
      "no task runs and none can start, with 4 of 6 tasks left: the schedule's dependencies go round in a "
      "circle; verify it first\n"
      "compute: task 1 'L3 mb0 permute forward' waits for task 4 'L3 mb0 experts forward' (compute)\n"
      "intra: task 3 'L3 mb0 dispatch forward' waits for task 1 'L3 mb0 permute forward' (compute)");
}

// Through two streams, and after communication that was under way has ended: nothing is in flight then.
TEST_F(Failures, OfCommunicationAndComputeThatWaitForEachOther) {
  Schedule schedule = busy_schedule();
  schedule.tasks[3].after = {1, 5};
  runner_.on_start = [](const Task&, BufferTable&) {
    return std::make_unique<PendingUntil>([looks = 0]() mutable { return ++looks > 3; });
  };
  const std::string error = run(schedule);
  EXPECT_NE(error.find("with 3 of 6 tasks left"), std::string::npos) << error;
  EXPECT_NE(
      error.find("compute: task 4 'L3 mb0 experts forward' waits for task 3 'L3 mb0 dispatch forward' "
                 "(intra)\nintra: task 3 'L3 mb0 dispatch forward' waits for task 5 'optimizer forward' "
                 "(compute)"),
      std::string::npos)
      << error;
}

// Nobody would ever start it.
TEST_F(Failures, OfAStreamThatIsNotServed) {
  int unserved = 0;
  for (int i = 0; i < schedule::kStreams; ++i) {
    const auto stream = static_cast<Stream>(i);
    if (serves(stream)) {
      continue;
    }
    ++unserved;
    Schedule schedule = busy_schedule();
    schedule.tasks.push_back(
        {.op = Op::send,
         .stream = stream,
         .micro_batch = 1,
         .communication = Communication{.collective = schedule::Collective::send, .peer = 1}});
    bool anything = false;
    runner_.on_run = [&](const Task&, BufferTable&) { anything = true; };
    EXPECT_EQ(
        run(schedule),
        fmt::format("task 6 'mb1 send forward' is on stream {}, which the executor does not serve (it serves "
                    "compute, prefetch, intra, inter, reduce): such a schedule can be simulated, not run",
                    name_of(stream)));
    EXPECT_FALSE(anything);
  }
  EXPECT_EQ(unserved, 4);
}

// What serves() promises is kept: a task on each of those streams runs.
TEST_F(Failures, AreNoneOnTheStreamsThatAreServed) {
  for (int i = 0; i < schedule::kStreams; ++i) {
    const auto stream = static_cast<Stream>(i);
    if (!serves(stream)) {
      continue;
    }
    Schedule schedule;
    schedule.groups = {{"world", {0, 1}}};
    schedule.tasks = {{.stream = stream}};
    if (is_communication(stream)) {
      schedule.tasks.front().communication = Communication{};
    }
    int ran = 0;
    runner_.on_run = [&](const Task&, BufferTable&) { ++ran; };
    runner_.on_start = [&](const Task&, BufferTable&) -> std::unique_ptr<PendingCommunication> {
      ++ran;
      return nullptr;
    };
    EXPECT_EQ(run(schedule), "no error") << name_of(stream);
    EXPECT_EQ(ran, 1) << name_of(stream);
  }
}

TEST_F(Failures, OfAScheduleWithIdsThatDoNotExist) {
  Schedule schedule = busy_schedule();
  schedule.tasks[3].uses = {4};
  EXPECT_NE(run(schedule).find("L3 mb0 dispatch forward"), std::string::npos);
  schedule = busy_schedule();
  schedule.tasks[1].after = {6};
  EXPECT_NE(run(schedule).find("L3 mb0 permute forward"), std::string::npos);
}

TEST_F(Failures, OfABufferAcquiredTwice) {
  Schedule schedule = busy_schedule();
  schedule.tasks[4].acquires = {2};
  EXPECT_NE(run(schedule).find("held already"), std::string::npos);
}

TEST(Stall, IsReportedAndMayEnd) {
  MemoryPool pool;
  std::vector<std::string> reports;
  Executor executor(pool, {.stall_limit_seconds = 0.01,
                           .on_stall = [&](const std::string& report) { reports.push_back(report); }});
  ScriptedRunner runner;
  runner.on_start = [&](const Task& task, BufferTable&) -> std::unique_ptr<PendingCommunication> {
    return task.op != Op::dispatch ? nullptr
                                   : std::make_unique<PendingUntil>([&] { return reports.size() == 2; });
  };
  executor.run(busy_schedule(), runner);
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_NE(reports[1].find("intra: L3 mb0 dispatch forward (group ep), in flight for "), std::string::npos)
      << reports[1];
  EXPECT_NE(reports[1].find("compute: waiting "), std::string::npos) << reports[1];
  EXPECT_NE(reports[1].find(" for L3 mb0 dispatch forward (intra)"), std::string::npos) << reports[1];
  EXPECT_NE(reports[1].find("reduce: idle"), std::string::npos) << reports[1];
}

TEST(Stall, IsAnErrorWithoutACallbackOrFromIt) {
  MemoryPool pool;
  ScriptedRunner runner;
  runner.on_start = [](const Task& task, BufferTable&) {
    return task.op == Op::reduce_dense ? never() : nullptr;
  };
  Executor plain(pool, {.stall_limit_seconds = 0.01});
  const std::string error = error_of(plain, busy_schedule(), runner);
  EXPECT_EQ(error.rfind("L9 reduce_dense forward: no end after 0.01 s:\n", 0), 0U) << error;

  Executor throwing(pool,
                    {.stall_limit_seconds = 0.01, .on_stall = [](const std::string&) { fail("given up"); }});
  EXPECT_EQ(error_of(throwing, busy_schedule(), runner), "L9 reduce_dense forward: given up");
  EXPECT_EQ(pool.current_bytes(), 0);
}

// The clock jumps far ahead, but no limit is set.
TEST(Stall, HasNoLimitWhenItIsZero) {
  MemoryPool pool;
  std::atomic<std::int64_t> now = 0;
  Executor executor(pool, {.stall_limit_seconds = 0, .clock = [&] { return now += 1'000'000'000'000; }});
  ScriptedRunner runner;
  runner.on_start = [&](const Task&, BufferTable&) {
    return std::make_unique<PendingUntil>([tests = 0]() mutable { return ++tests > 3; });
  };
  executor.run(busy_schedule(), runner);
}

}  // namespace
}  // namespace expedite::runtime
