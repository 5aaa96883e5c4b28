// Measures what the executor's communication takes, alone and while the ranks compute, and what it takes from
// that compute.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "expedite/comm/process_grid.h"
#include "expedite/cost/cluster.h"

namespace expedite::bench {

struct CollectiveProbeOptions {
  bool quick = false;
  int threads = 1;  // of each rank
};

/// Runs schedules of one collective at a time through runtime::Executor, beside nothing and beside products,
/// in groups of every shape that a step's groups may have: some or all ranks of a node, and one or all ranks
/// of each of some or all nodes. Fills in `collectives`, `sharing` and `task_seconds` of a cluster whose
/// nodes and ranks are known. `say` is told what comes next. Collective; the same on all ranks.
void measure_execution(const comm::ProcessGrid& grid, const CollectiveProbeOptions& options,
                       const std::function<void(std::string_view)>& say, cost::Cluster& cluster);

}  // namespace expedite::bench
