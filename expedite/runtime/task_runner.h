// What the tasks of a schedule mean: the executor knows when, a TaskRunner knows what.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "expedite/base/row_traffic.h"
#include "expedite/runtime/buffer_table.h"
#include "expedite/schedule/schedule.h"

namespace expedite::runtime {

/// Communication under way. Destroyed on the communication thread.
class PendingCommunication {
 public:
  virtual ~PendingCommunication() = default;
  /// Makes progress; true once it is complete. Called on the communication thread, again and again, never
  /// after it returned true.
  [[nodiscard]] virtual bool test() = 0;
  /// Bytes this rank sends to others, for the trace; 0 if unknown.
  [[nodiscard]] virtual std::int64_t bytes() const { return 0; }
  /// The part of them that are token rows, and what this rank reads from its neighbours' memory.
  [[nodiscard]] virtual RowTraffic rows() const { return {}; }
};

/// Any operation with test() and bytes(), such as those of `comm`, as a PendingCommunication.
template <typename Operation>
class PendingOperation final : public PendingCommunication {
 public:
  explicit PendingOperation(Operation operation) : operation_(std::move(operation)) {}
  [[nodiscard]] bool test() override { return operation_.test(); }
  [[nodiscard]] std::int64_t bytes() const override { return operation_.bytes(); }

 private:
  Operation operation_;
};

template <typename Operation>
[[nodiscard]] std::unique_ptr<PendingCommunication> make_pending(Operation operation) {
  return std::make_unique<PendingOperation<Operation>>(std::move(operation));
}

/// Implemented by whoever owns the model. run() is called on two threads, one per stream, bytes() and start()
/// on any of the executor's: what they share must be ordered by the schedule, or guarded.
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
