// Runs a Schedule: one thread per kind of stream, and every MPI call on the thread that calls run().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "expedite/runtime/buffer_table.h"
#include "expedite/runtime/status.h"
#include "expedite/runtime/task_runner.h"
#include "expedite/schedule/schedule.h"
#include "expedite/tensor/memory_pool.h"
#include "expedite/tracing/trace.h"

namespace expedite::runtime {

/// Whether the executor runs tasks of a stream. Messages between pipeline stages can be simulated, not run.
[[nodiscard]] constexpr bool serves(schedule::Stream stream) {
  using schedule::Stream;
  return stream == Stream::compute || stream == Stream::prefetch || stream == Stream::intra ||
         stream == Stream::inter || stream == Stream::reduce;
}

struct ExecutorOptions {
  /// How long a started communication may take before on_stall is called; 0: no limit.
  double stall_limit_seconds = 300;
  /// Called on the communication thread with a report of all streams, again after each further limit; may
  /// throw to end the run. Without it a stall is an Error.
  std::function<void(const std::string& report)> on_stall = {};
  /// Called on the communication thread about every poll_interval while a step runs (a control channel's
  /// poll).
  std::function<void()> poll = {};
  std::chrono::milliseconds poll_interval{10};
  /// Called once on the compute thread before its first task (omp_set_num_threads, binding).
  std::function<void()> compute_thread_setup = {};
  /// The longest sleep between two looks at communication under way.
  std::chrono::microseconds longest_sleep{200};
  /// The thread that calls run() goes before others on its core meanwhile, where the system allows
  /// (UrgentThread): a message's end is then seen at once, not when a turn of compute ends. Not where ranks
  /// take turns on cores: each would take from the others' compute.
  bool urgent_communication = false;
  /// Where shared buffers lie (LogicalBuffer::shared); null: with the others.
  MemoryPool* shared_pool = nullptr;
  /// Nanoseconds; default: comm::steady_nanoseconds.
  std::function<std::int64_t()> clock = {};
  /// Where task times go; null: nowhere.
  tracing::TraceRecorder* trace = nullptr;
};

/// Keeps a compute thread, and a prefetch thread once a schedule needs one, between steps. The thread that
/// calls run() serves the communication streams: each starts its tasks in order, streams overlap, and between
/// looks at what is under way the thread sleeps, because the compute threads own the cores.
class Executor {
 public:
  Executor(MemoryPool& pool, ExecutorOptions options);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  /// Runs every task and returns. The schedule must be sound (schedule::verify). An Error before anything
  /// runs if a task is on a stream that is not served, or names what does not exist; and one that names the
  /// next task of each stream and what it waits for, if none runs and none can. When a task throws, all
  /// streams stop after the tasks they are in, communication under way is abandoned (its peers wait for this
  /// rank, so the caller must end the job), and run() throws an Error that starts with the task's label: "L3
  /// mb0 experts forward: ...". The executor can run again.
  void run(const schedule::Schedule& schedule, TaskRunner& runner);

  /// What every stream is doing now. From any thread.
  [[nodiscard]] Status status() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace expedite::runtime
