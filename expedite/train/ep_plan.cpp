#include "expedite/train/ep_plan.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "expedite/model/quick_cluster.h"

namespace expedite::train {
namespace {

schedule::Dispatcher dispatcher_of(Dispatcher dispatcher) {
  switch (dispatcher) {
    case Dispatcher::alltoall:
    case Dispatcher::automatic:
      break;
    case Dispatcher::zero_redundancy:
      return schedule::Dispatcher::zero_redundancy;
    case Dispatcher::hierarchical:
      return schedule::Dispatcher::hierarchical;
    case Dispatcher::hierarchical_dedup:
      return schedule::Dispatcher::hierarchical_dedup;
  }
  return schedule::Dispatcher::alltoall;
}

/// Not where the schedule takes layers whole.
bool chooses_chunks(const TrainConfig& config) {
  return config.parallel.ep_plan.moe_num_chunks.automatic && config.parallel.schedule->chunks;
}

/// Where nothing travels, one chunk of the simplest dispatcher is best.
bool leaves_choice(const TrainConfig& config, const comm::GridLayout& layout) {
  return (config.parallel.ep_plan.dispatcher == Dispatcher::automatic || chooses_chunks(config)) &&
         layout.expert_parallel_size() > 1;
}

/// Fills in what the configuration leaves to measurement. `measure(sizes)` is called before the rates of
/// products are read.
template <typename Measure>
void choose(const TrainConfig& config, const ModelConfig& model, const comm::Placement& placement, int rank,
            const cost::Cluster& cluster, const Measure& measure, schedule::EpPlan& plan) {
  const TrainConfig::EpPlan& wanted = config.parallel.ep_plan;
  const std::int64_t tokens = config.train.micro_batch_size * config.data.seq_length;
  if (wanted.dispatcher == Dispatcher::automatic) {
    const cost::DispatcherChoice choice = cost::choose_dispatcher(
        cluster, model::dispatch_case(model, placement, rank, config.dtype, tokens, plan.chunking.chunks));
    plan.dispatcher = choice.dispatcher;
    if (rank == 0) {
      spdlog::info("dispatcher {}", choice.reason);
    }
  }
  if (chooses_chunks(config)) {
    const cost::ExpertLayer layer = model::expert_layer(model, placement, rank, config.dtype, tokens, plan);
    measure(cost::products_of(layer));
    const cost::ChunkChoice choice = cost::choose_chunks(cluster, layer);
    plan.chunking.chunks = choice.chunks;
    if (rank == 0) {
      spdlog::info("moe_num_chunks {}", choice.reason);
    }
  }
}

}  // namespace

schedule::EpPlan plan_as_asked(const TrainConfig& config) {
  const TrainConfig::EpPlan& wanted = config.parallel.ep_plan;
  const bool counted = wanted.moe_num_chunks.automatic || wanted.moe_num_chunks.chunks > 0;
  schedule::EpPlan plan;
  plan.dispatcher = dispatcher_of(wanted.dispatcher);
  plan.pipeline = wanted.moe_chunk_pipeline;
  plan.window = static_cast<int>(wanted.moe_chunk_window);
  plan.recompute = wanted.chunk_moe_recompute;
  plan.chunking.chunks = static_cast<int>(std::max<std::int64_t>(1, wanted.moe_num_chunks.chunks));
  plan.chunking.chunk_size = counted ? 0 : wanted.moe_chunk_size;
  return plan;
}

schedule::EpPlan ep_plan(const TrainConfig& config, const ModelConfig& model, const comm::ProcessGrid& grid,
                         int threads) {
  const TrainConfig::EpPlan& wanted = config.parallel.ep_plan;
  const bool counted = wanted.moe_num_chunks.automatic || wanted.moe_num_chunks.chunks > 0;
  if (counted && wanted.moe_chunk_size > 0 && grid.rank() == 0) {
    spdlog::warn("moe_num_chunks and moe_chunk_size = {} are both given: moe_num_chunks counts",
                 wanted.moe_chunk_size);
  }
  schedule::EpPlan plan = plan_as_asked(config);
  if (leaves_choice(config, grid.layout())) {
    cost::Cluster cluster = model::quick_cluster(grid, threads);
    choose(
        config, model, grid.placement(), grid.rank(), cluster,
        [&](const std::vector<cost::ProductSize>& sizes) {
          model::probe_products(grid, threads, config.dtype, sizes, cluster);
        },
        plan);
  }
  plan.taper();
  return plan;
}

schedule::EpPlan ep_plan(const TrainConfig& config, const ModelConfig& model,
                         const comm::Placement& placement, const cost::Cluster& cluster) {
  schedule::EpPlan plan = plan_as_asked(config);
  if (leaves_choice(config, placement.layout)) {
    choose(
        config, model, placement, 0, cluster, [](const std::vector<cost::ProductSize>&) {}, plan);
  }
  plan.taper();
  return plan;
}

}  // namespace expedite::train
