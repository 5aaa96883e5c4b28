// `expedite probe`: measures the cluster that a job runs on.
#pragma once

#include "expedite/comm/process_grid.h"
#include "expedite/cost/cluster.h"

namespace expedite::bench {

struct ProbeOptions {
  bool quick = false;  // fewer shapes and shorter samples
  int threads = 1;     // of each rank
};

/// Matmul rates, memory, caches and links, measured by all ranks at once; of the ranks' rates the median.
/// Rank 0 says on standard error what it is about. Collective; the same on all ranks.
[[nodiscard]] cost::Cluster probe_cluster(const comm::ProcessGrid& grid, const ProbeOptions& options);

/// A table on standard output.
void print(const cost::Cluster& cluster);

}  // namespace expedite::bench
