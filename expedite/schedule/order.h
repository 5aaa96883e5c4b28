// Which tasks of one rank are sure to end before another starts.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "expedite/schedule/schedule.h"

namespace expedite::schedule {

/// Happens-before over one rank's dependencies and stream order, as a vector clock per task: for every
/// stream, how many of its tasks are sure to have ended. A number per stream instead of a bit per pair, so
/// 100,000 tasks are cheap. All ids of the schedule must be in range.
class LocalOrder {
 public:
  explicit LocalOrder(const Schedule& schedule);

  /// False when dependencies and stream order contradict each other; then before() means nothing.
  [[nodiscard]] bool acyclic() const { return sequence_.size() == position_.size(); }
  /// Whether `first` is sure to have ended when `second` starts.
  [[nodiscard]] bool before(TaskId first, TaskId second) const;
  /// An order the tasks could run in one at a time: as they stand, where that is possible.
  [[nodiscard]] const std::vector<TaskId>& sequence() const { return sequence_; }
  /// The task before this one in its stream, or -1.
  [[nodiscard]] TaskId predecessor(TaskId task) const { return predecessor_[static_cast<std::size_t>(task)]; }

 private:
  void number_streams();
  void sort();
  void raise_clock(TaskId task, TaskId earlier);

  const Schedule& schedule_;
  std::vector<TaskId> predecessor_;
  std::vector<std::int32_t> position_;  // in its stream, from 1
  std::vector<std::array<std::int32_t, kStreams>> clock_;
  std::vector<TaskId> sequence_;
};

}  // namespace expedite::schedule
