// The cluster that a job runs on, as a short look at the job's start shows it: enough to choose a dispatcher
// where no file from `expedite probe` is given.
#pragma once

#include <span>

#include "expedite/architecture/model_config.h"
#include "expedite/comm/link_probe.h"
#include "expedite/comm/process_grid.h"
#include "expedite/cost/chunk_choice.h"
#include "expedite/cost/cluster.h"
#include "expedite/cost/dispatch_cost.h"

namespace expedite::model {

/// Nodes, ranks per node, links, and how fast a rank copies in memory; no matmul rates and no caches. All
/// ranks measure at once, each with `threads` threads, for about 0.2 s. Collective over the grid's world; the
/// same on all ranks.
[[nodiscard]] cost::Cluster quick_cluster(const comm::ProcessGrid& grid, int threads);

/// A model's MoE layer on the expert-parallel group of `rank`, as cost::choose_dispatcher takes it: `tokens`
/// per rank and micro-batch, of `dtype`, in `chunks` chunks, chosen evenly.
[[nodiscard]] cost::DispatchCase dispatch_case(const ModelConfig& config, const comm::Placement& placement,
                                               int rank, DType dtype, std::int64_t tokens,
                                               std::int64_t chunks);

/// The same with the experts' work and the plan whose chunks are to be chosen.
[[nodiscard]] cost::ExpertLayer expert_layer(const ModelConfig& config, const comm::Placement& placement,
                                             int rank, DType dtype, std::int64_t tokens,
                                             const schedule::EpPlan& plan);

/// Adds the rates of these products, some 5 ms each. Collective; the same on all ranks.
void probe_products(const comm::ProcessGrid& grid, int threads, DType dtype,
                    std::span<const cost::ProductSize> sizes, cost::Cluster& cluster);

/// Adds both levels of links that there are. Collective; the same on all ranks.
void probe_links(const comm::ProcessGrid& grid, const comm::LinkProbeOptions& options,
                 cost::Cluster& cluster);

/// The median of what the ranks measured, to the four digits that a measurement is good for. Collective.
[[nodiscard]] double agree(const comm::Communicator& world, double measured);
/// The same of each of several numbers, in place.
void agree(const comm::Communicator& world, std::span<double> measured);

}  // namespace expedite::model
