#include "expedite/model/engine.h"

#include <omp.h>

#include <algorithm>

#include "expedite/base/cores.h"
#include "expedite/comm/collectives.h"
#include "expedite/comm/grid_layout.h"
#include "expedite/comm/machine.h"
#include "expedite/runtime/agreement.h"
#include "expedite/schedule/verify.h"

namespace expedite::model {

Engine::Engine(Parameters& parameters, const comm::ProcessGrid& grid, MemoryPool& pool, EngineOptions options)
    : grid_(grid),
      options_(options),
      trace_(std::max(options.traced_steps, 1)),
      runner_(parameters, grid, pool, options.ep_plan),
      control_(grid.world(), {.report = [this] { return runtime::to_string(executor_->status()); }}),
      wait_hook_([this](auto waited, const std::string& where) { watch_wait(waited, where); }) {
  runtime::ExecutorOptions executor;
  executor.stall_limit_seconds = options.collective_timeout_s;
  executor.on_stall = [this](const std::string&) {
    control_.report_stall(
        fmt::format("communication has waited longer than runtime.collective_timeout_s = {} s",
                    options_.collective_timeout_s));
  };
  executor.poll = [this] { control_.poll(); };
  executor.compute_thread_setup = [threads = options.threads] { omp_set_num_threads(threads); };
  executor.urgent_communication = own_cores(grid, options.threads);
  executor.trace = &trace_;
  executor.shared_pool = runner_.shared_pool();
  executor_ = std::make_unique<runtime::Executor>(pool, std::move(executor));
}

void Engine::watch_wait(std::chrono::duration<double> waited, const std::string& where) {
  if (executor_ == nullptr) {
    return;  // still being made
  }
  control_.poll();
  if (options_.collective_timeout_s > 0.0 && waited.count() > options_.collective_timeout_s) {
    control_.report_stall(fmt::format(
        "communication of group {} between steps has waited longer than runtime.collective_timeout_s = {} s",
        where, options_.collective_timeout_s));
  }
}

void Engine::prepare(const StepShape& shape, const schedule::Builder& builder) {
  const Prepared wanted(shape, &builder);
  if (prepared_ == wanted) {
    return;
  }
  const auto build = [&](int rank) { return schedule::build(builder, runner_.spec(rank, shape)); };
  const auto require_sound = [](const std::vector<std::string>& faults) {
    require(faults.empty(), "the schedule of the step is unsound: {}", fmt::join(faults, "; "));
  };
  spec_ = runner_.spec(grid_.rank(), shape);
  schedule_ = build(grid_.rank());
  if (std::ranges::find(verified_, wanted) == verified_.end()) {
    require_sound(schedule::verify_alone(schedule_, grid_.size()));
    runtime::require_agreement(grid_.world(), schedule_);
    if (grid_.rank() == 0) {  // builders are pure: one rank can see what all ranks will do
      std::vector<schedule::Schedule> all;
      for (int rank = 0; rank < grid_.size(); ++rank) {
        all.push_back(build(rank));
      }
      require_sound(schedule::verify(all));
    }
    verified_.push_back(wanted);
  }
  prepared_ = wanted;
}

void Engine::execute(const StepRunner::Input& input, const StepOptions& options) {
  runner_.begin(spec_, schedule_, input, options);
  try {
    executor_->run(schedule_, runner_);
  } catch (const Error& error) {
    if (options.step > 0) {
      fail("step {}: {}", options.step, error.what());
    }
    throw;
  }
}

StepResult Engine::run(const StepShape& shape, const StepRunner::Input& input, const StepOptions& options) {
  prepare(shape, shape.training ? *options_.builder : schedule::step_builders().front());
  execute(input, options);
  return runner_.result();
}

void Engine::run_moe_layer(const StepShape& shape, const StepRunner::Input& input, const StepOptions& options,
                           const StepRunner::Boundary& boundary) {
  prepare(shape, *options_.layer_builder);
  runner_.set_boundary(boundary);
  execute(input, options);
}

ExpertShard expert_shard(const ModelConfig& config, const comm::ProcessGrid& grid) {
  return expert_shard(config, grid.layout(), grid.rank());
}

ExpertShard expert_shard(const ModelConfig& config, const comm::GridLayout& layout, int rank) {
  ExpertShard shard;
  shard.first_expert.clear();
  for (int member = 0; member < layout.expert_parallel_size(); ++member) {
    shard.first_expert.push_back(
        comm::expert_range(config.experts, layout.expert_parallel_size(), member).begin);
  }
  shard.first_expert.push_back(config.experts);
  shard.ep_rank = layout.expert_parallel_rank(rank);
  return shard;
}

int threads_per_rank(const comm::ProcessGrid& grid) {
  const Cores cores = count_cores();
  const bool bound = cores.bound < cores.machine;  // by the launcher, who shared the cores out
  return std::max(1, bound ? cores.bound : cores.machine / grid.local_size());
}

bool own_cores(const comm::ProcessGrid& grid, int threads) {
  struct Rank {
    Processors allowed;
    int threads = 0;
  };
  const std::vector<Rank> ranks = comm::all_gather(grid.world(), Rank{allowed_processors(), threads});
  Rank machine;
  for (const int rank : comm::ranks_of_machine(grid.world())) {
    machine.allowed |= ranks[static_cast<std::size_t>(rank)].allowed;
    machine.threads += ranks[static_cast<std::size_t>(rank)].threads;
  }
  return machine.threads <= static_cast<int>(machine.allowed.count());
}

}  // namespace expedite::model
