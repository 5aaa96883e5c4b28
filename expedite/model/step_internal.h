// Shared by the sources of StepRunner.
#pragma once

#include "expedite/model/moe_layer.h"
#include "expedite/model/shared_expert.h"
#include "expedite/model/step.h"

namespace expedite::model {

/// What every rank contributes to a StepResult: kSums numbers, then the expert loads, [sparse layers][E].
enum Sum : std::uint8_t { kLossSum, kAuxSum, kZSum, kSquares, kStop, kSums };

/// A task's buffers by role and layer. Only those that the schedule says the task holds.
class StepRunner::Held {
 public:
  Held(const schedule::Schedule& schedule, const schedule::Task& task, runtime::BufferTable& table)
      : schedule_(schedule), task_(task), table_(table) {}

  [[nodiscard]] Buffer& operator()(schedule::Role role) { return (*this)(role, task_.layer); }
  [[nodiscard]] Buffer& operator()(schedule::Role role, int layer) {
    Buffer* buffer = find(role, layer);
    if (buffer == nullptr) {
      fail("the schedule gives {} no buffer '{}' of layer {}", label(task_), name_of(role), layer);
    }
    return *buffer;
  }
  /// Null: the task does not hold it.
  [[nodiscard]] Buffer* find(schedule::Role role) { return find(role, task_.layer); }

 private:
  [[nodiscard]] Buffer* find(schedule::Role role, int layer) {
    for (const auto* ids : {&task_.acquires, &task_.uses, &task_.releases}) {
      for (const schedule::BufferId id : *ids) {
        const schedule::LogicalBuffer& buffer = schedule_.buffers[static_cast<std::size_t>(id)];
        if (buffer.role == static_cast<std::uint8_t>(role) && buffer.layer == layer) {
          return &table_[id];
        }
      }
    }
    return nullptr;
  }

  const schedule::Schedule& schedule_;
  const schedule::Task& task_;
  runtime::BufferTable& table_;
};

}  // namespace expedite::model
