// The buffers that the tasks of a step hold at the moment.
#pragma once

#include <vector>

#include "expedite/schedule/schedule.h"
#include "expedite/tensor/memory_pool.h"

namespace expedite::runtime {

/// One task's window on the buffers of the step: those it acquires, uses or releases. Anything else is an
/// Error, since the schedule does not promise that it is held.
class BufferTable {
 public:
  [[nodiscard]] Buffer& operator[](schedule::BufferId id);

 private:
  friend class BufferStore;
  BufferTable(std::vector<Buffer>& buffers, const schedule::Task& task) : buffers_(buffers), task_(task) {}

  std::vector<Buffer>& buffers_;
  const schedule::Task& task_;
};

/// All buffers of a step. Each slot is touched by one task at a time: the schedule orders them, so no lock is
/// needed.
class BufferStore {
 public:
  explicit BufferStore(std::size_t count) : buffers_(count) {}

  /// An Error if the buffer is held already.
  void acquire(schedule::BufferId id, Buffer buffer, const schedule::Task& task);
  /// An Error if it is not held.
  void release(schedule::BufferId id, const schedule::Task& task);
  [[nodiscard]] BufferTable window(const schedule::Task& task) { return {buffers_, task}; }

 private:
  std::vector<Buffer> buffers_;
};

}  // namespace expedite::runtime
