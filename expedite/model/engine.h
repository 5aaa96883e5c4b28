// Steps of a model on this rank: builds and verifies schedules, runs them, and watches over the ranks
// meanwhile.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "expedite/comm/control_channel.h"
#include "expedite/comm/request.h"
#include "expedite/model/step.h"
#include "expedite/runtime/executor.h"
#include "expedite/schedule/builders.h"

namespace expedite::model {

struct EngineOptions {
  int threads = 1;  // cores of the compute stream
  schedule::EpPlan ep_plan = {};
  /// Of training steps; those of evaluation are the first builder's. They must outlive the engine.
  const schedule::Builder* builder = &schedule::step_builders().front();
  const schedule::Builder* layer_builder = &schedule::layer_builders().front();
  double collective_timeout_s =
      300.0;             // a communication that takes longer ends the job with a report; 0: no limit
  int traced_steps = 0;  // how many of the latest steps' events are kept
};

class Engine {
 public:
  /// Collective over the grid's world. The parameters must outlive the engine.
  Engine(Parameters& parameters, const comm::ProcessGrid& grid, MemoryPool& pool, EngineOptions options);

  /// Runs one step, collectively: the shape is the same on every rank. Throws Error naming the step and the
  /// task when one fails; the other ranks then wait for this one, so the caller must end the job (see
  /// fail_job).
  StepResult run(const StepShape& shape, const StepRunner::Input& input, const StepOptions& options);

  /// As run(), of the model's first layer alone, which has experts: forward and, with shape.training,
  /// backward.
  void run_moe_layer(const StepShape& shape, const StepRunner::Input& input, const StepOptions& options,
                     const StepRunner::Boundary& boundary);

  /// Prints why on every rank, and ends the job.
  [[noreturn]] void fail_job(std::string_view reason) { control_.announce_failure(reason); }

  void set_observer(Observer observer) { runner_.set_observer(std::move(observer)); }
  [[nodiscard]] tracing::TraceRecorder& trace() { return trace_; }
  /// The schedule that the last step ran.
  [[nodiscard]] const schedule::Schedule& schedule() const { return schedule_; }

 private:
  using Prepared = std::pair<StepShape, const schedule::Builder*>;
  /// Builds the schedule. The first time, every rank verifies its own, the ranks compare what of it must
  /// meet, and rank 0 verifies all as it would build them, which also tells deadlocks through several ranks.
  void prepare(const StepShape& shape, const schedule::Builder& builder);
  void execute(const StepRunner::Input& input, const StepOptions& options);
  /// Meanwhile, in communication outside of steps: answers other ranks, and ends the job after the time
  /// limit.
  void watch_wait(std::chrono::duration<double> waited, const std::string& where);

  const comm::ProcessGrid& grid_;
  EngineOptions options_;
  tracing::TraceRecorder trace_;
  StepRunner runner_;
  std::unique_ptr<runtime::Executor> executor_;
  comm::ControlChannel control_;
  comm::WaitHook wait_hook_;
  std::vector<Prepared> verified_;
  std::optional<Prepared> prepared_;
  schedule::StepSpec spec_;
  schedule::Schedule schedule_;
};

/// The experts of this rank.
[[nodiscard]] ExpertShard expert_shard(const ModelConfig& config, const comm::ProcessGrid& grid);
/// Those of a rank.
[[nodiscard]] ExpertShard expert_shard(const ModelConfig& config, const comm::GridLayout& layout, int rank);

/// Cores that each rank of this node owns, at least one: for EngineOptions::threads. Pinned ranks count the
/// cores they are pinned to.
[[nodiscard]] int threads_per_rank(const comm::ProcessGrid& grid);

/// Whether the processors that the ranks of this machine may run on are enough for `threads` of each rank.
/// Collective over the grid's world.
[[nodiscard]] bool own_cores(const comm::ProcessGrid& grid, int threads);

}  // namespace expedite::model
