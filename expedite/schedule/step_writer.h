// Shared by the builders of steps: adds tasks, and makes each buffer the first time that it is named.
#pragma once

#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "expedite/schedule/role.h"
#include "expedite/schedule/step_spec.h"

namespace expedite::schedule {

/// A buffer of the current micro-batch.
struct BufferKey {
  Role role = Role::hidden;
  int layer = -1;
  int chunk = -1;
  bool operator<(const BufferKey& other) const {
    return std::tie(role, layer, chunk) < std::tie(other.role, other.layer, other.chunk);
  }
};

/// What a task holds; a buffer named in one list need not be named in another.
struct Held {
  std::vector<BufferKey> acquires = {};
  std::vector<BufferKey> uses = {};
  std::vector<BufferKey> releases = {};
};

/// What a task does, for what, and after which tasks.
struct Work {
  Op op = Op::embedding;
  Pass pass = Pass::forward;
  int layer = -1;
  std::vector<TaskId> after = {};
  int chunk = -1;
  int chunks = 1;
  Piece piece = Piece::chunk;
};

class StepWriter {
 public:
  explicit StepWriter(const StepSpec& spec);

  /// Buffers of micro-batches are apart; one may be gone on with. -1: the end of the step.
  void begin_micro_batch(int micro_batch);
  [[nodiscard]] int micro_batch() const { return micro_batch_; }
  [[nodiscard]] bool last_micro_batch() const { return micro_batch_ == spec_.micro_batches - 1; }

  TaskId compute(Work work, const Held& held);
  TaskId communicate(Work work, Stream stream, Collective collective, GroupId group, const Held& held = {});
  /// A send or a receive.
  TaskId message(Work work, Stream stream, Collective collective, GroupId group, int peer, const Held& held);
  /// One more task to wait for.
  void wait(TaskId task, TaskId earlier) {
    schedule_.tasks[static_cast<std::size_t>(task)].after.push_back(earlier);
  }
  /// The latest compute task, or -1.
  [[nodiscard]] TaskId last_compute() const { return last_compute_; }
  /// The id that the next task will have.
  [[nodiscard]] TaskId next_task() const { return static_cast<TaskId>(schedule_.tasks.size()); }

  /// The key's next use is of a new buffer: the old one has been released.
  void renew(const BufferKey& key) { buffers().erase(key); }
  /// The same of the layer's buffers of that role, whatever their chunk.
  void renew(Role role, int layer);

  [[nodiscard]] Schedule take() { return std::move(schedule_); }
  /// With the tasks in another order: order[i] is the task that comes to stand at i.
  [[nodiscard]] Schedule take(std::span<const TaskId> order);

 private:
  std::vector<BufferId> ids(const std::vector<BufferKey>& keys);
  [[nodiscard]] std::int64_t expected_bytes(const BufferKey& key) const;
  [[nodiscard]] std::map<BufferKey, BufferId>& buffers() {
    return buffers_[static_cast<std::size_t>(micro_batch_ + 1)];
  }

  const StepSpec& spec_;
  std::vector<std::int64_t> chunk_bounds_;
  int micro_batch_ = -1;
  TaskId last_compute_ = -1;
  std::vector<std::map<BufferKey, BufferId>> buffers_;  // by micro-batch, from -1
  Schedule schedule_;
};

}  // namespace expedite::schedule
