// Runs a Schedule: one thread per kind of stream, and every MPI call on the thread that calls run().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "expedite/runtime/trace.h"
#include "expedite/schedule/schedule.h"
#include "expedite/tensor/memory_pool.h"

namespace expedite::runtime {

/// The buffers that tasks hold at the moment. A task may touch only those it acquires, uses or releases.
class BufferTable {
 public:
  [[nodiscard]] Buffer& operator[](schedule::BufferId id);
};

/// Communication under way. Destroyed on the communication thread.
class PendingCommunication {
 public:
  virtual ~PendingCommunication() = default;
  /// Makes progress; true once it is complete. Called on the communication thread, again and again.
  [[nodiscard]] virtual bool test() = 0;
};

/// What the tasks of a schedule mean: implemented by whoever owns the model.
class TaskRunner {
 public:
  virtual ~TaskRunner() = default;
  /// The size of a buffer, asked when the task that acquires it is about to start.
  [[nodiscard]] virtual std::int64_t bytes(const schedule::LogicalBuffer& buffer) = 0;
  /// Runs a compute or prefetch task to its end, on that stream's thread.
  virtual void run(const schedule::Task& task, BufferTable& buffers) = 0;
  /// Starts a communication task, on the communication thread. Null: nothing to do, it is complete.
  [[nodiscard]] virtual std::unique_ptr<PendingCommunication> start(const schedule::Task& task,
                                                                    BufferTable& buffers) = 0;
};
}  // namespace expedite::runtime
