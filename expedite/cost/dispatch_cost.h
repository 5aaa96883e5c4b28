// What a dispatcher costs on a cluster: bytes per level of links and seconds, and which dispatcher to use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "expedite/cost/cluster.h"
#include "expedite/cost/routing.h"
#include "expedite/schedule/dispatcher.h"

namespace expedite::cost {

/// One expert-parallel group's MoE layer.
struct DispatchCase {
  Routing routing;                  // E experts, k per token
  std::vector<int> rank_of_expert;  // [E] ranks of the group
  std::vector<int> node_of_rank;    // [ranks], nodes numbered from 0 without gaps
  std::int64_t tokens = 0;          // T, of each rank
  std::int64_t hidden = 0;          // H
  std::int64_t element_bytes = 2;
  std::int64_t chunks = 1;
};

/// Of dispatch and combine, forward; backward costs the same again. Bytes are expected values, summed over
/// all ranks.
struct DispatchCost {
  double inter_bytes = 0.0;
  double intra_bytes = 0.0;
  double inter_seconds = 0.0;  // on the links between nodes
  double intra_seconds = 0.0;  // inside nodes
  double seconds = 0.0;        // both, as far as one has to wait for the other
};

/// The flat dispatchers exchange both levels at once and take as long as the slower. A hierarchical one uses
/// the levels in turn, of several chunks at the same time: the slower level, and the faster for one chunk.
/// A level's seconds are those of its busiest rank or node: bytes over the measured bandwidth and messages
/// over the measured latency and rate. Inside a node the hierarchical dispatchers copy once, at the memory's
/// bandwidth, from where the row arrived. Throws Error when the cluster lacks a link that the case needs.
[[nodiscard]] DispatchCost dispatch_cost(const Cluster& cluster, const DispatchCase& layer,
                                         schedule::Dispatcher dispatcher);

struct DispatcherChoice {
  schedule::Dispatcher dispatcher = schedule::Dispatcher::alltoall;
  DispatchCost cost;
  std::string reason;  // one line
};

/// The dispatcher of the least seconds: among those within a few percent of it the simplest, and two levels
/// only where they save a quarter, because they have more steps.
[[nodiscard]] DispatcherChoice choose_dispatcher(const Cluster& cluster, const DispatchCase& layer);

}  // namespace expedite::cost
