// A TaskRunner made of functions, and pending communication made of a condition.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "expedite/runtime/task_runner.h"

namespace expedite::runtime::testing {

/// Complete once `done` says so.
class PendingUntil final : public PendingCommunication {
 public:
  explicit PendingUntil(std::function<bool()> done, std::int64_t bytes = 0)
      : done_(std::move(done)), bytes_(bytes) {}
  [[nodiscard]] bool test() override { return done_(); }
  [[nodiscard]] std::int64_t bytes() const override { return bytes_; }

 private:
  std::function<bool()> done_;
  std::int64_t bytes_;
};

struct ScriptedRunner final : TaskRunner {
  std::function<std::int64_t(const schedule::LogicalBuffer&)> on_bytes = [](const auto& buffer) {
    return buffer.expected_bytes;
  };
  std::function<void(const schedule::Task&, BufferTable&)> on_run = [](const auto&, auto&) {};
  std::function<std::unique_ptr<PendingCommunication>(const schedule::Task&, BufferTable&)> on_start =
      [](const auto&, auto&) { return nullptr; };

  [[nodiscard]] std::int64_t bytes(const schedule::LogicalBuffer& buffer) override {
    return on_bytes(buffer);
  }
  void run(const schedule::Task& task, BufferTable& buffers) override { on_run(task, buffers); }
  [[nodiscard]] std::unique_ptr<PendingCommunication> start(const schedule::Task& task,
                                                            BufferTable& buffers) override {
    return on_start(task, buffers);
  }
};

}  // namespace expedite::runtime::testing
