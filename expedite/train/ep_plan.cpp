#include "expedite/train/ep_plan.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "expedite/model/quick_cluster.h"

namespace expedite::train {
namespace {

schedule::Dispatcher measured_choice(const TrainConfig& config, const model::ModelConfig& model,
                                     const comm::ProcessGrid& grid, int threads, std::int64_t chunks) {
  if (grid.layout().expert_parallel_size() == 1) {
    return schedule::Dispatcher::alltoall;  // nothing travels
  }
  const std::int64_t tokens = config.train.micro_batch_size * config.data.seq_length;
  const cost::DispatcherChoice choice = cost::choose_dispatcher(
      model::quick_cluster(grid, threads), model::dispatch_case(model, grid, config.dtype, tokens, chunks));
  if (grid.rank() == 0) {
    spdlog::info("dispatcher {}", choice.reason);
  }
  return choice.dispatcher;
}

}  // namespace

schedule::EpPlan ep_plan(const TrainConfig& config, const model::ModelConfig& model,
                         const comm::ProcessGrid& grid, int threads) {
  const TrainConfig::EpPlan& wanted = config.parallel.ep_plan;
  if (wanted.moe_num_chunks > 0 && wanted.moe_chunk_size > 0 && grid.rank() == 0) {
    spdlog::warn("moe_num_chunks = {} and moe_chunk_size = {} are both given: {} chunks",
                 wanted.moe_num_chunks, wanted.moe_chunk_size, wanted.moe_num_chunks);
  }
  schedule::EpPlan plan;
  plan.pipeline = wanted.moe_chunk_pipeline;
  plan.window = static_cast<int>(wanted.moe_chunk_window);
  plan.recompute = wanted.chunk_moe_recompute;
  plan.chunking.chunks = static_cast<int>(std::max<std::int64_t>(1, wanted.moe_num_chunks));
  plan.chunking.chunk_size = wanted.moe_num_chunks > 0 ? 0 : wanted.moe_chunk_size;
  plan.taper();
  switch (wanted.dispatcher) {
    case Dispatcher::alltoall:
      plan.dispatcher = schedule::Dispatcher::alltoall;
      break;
    case Dispatcher::zero_redundancy:
      plan.dispatcher = schedule::Dispatcher::zero_redundancy;
      break;
    case Dispatcher::hierarchical:
      plan.dispatcher = schedule::Dispatcher::hierarchical;
      break;
    case Dispatcher::hierarchical_dedup:
      plan.dispatcher = schedule::Dispatcher::hierarchical_dedup;
      break;
    case Dispatcher::automatic:
      plan.dispatcher = measured_choice(config, model, grid, threads, plan.chunking.chunks);
      break;
  }
  return plan;
}

}  // namespace expedite::train
