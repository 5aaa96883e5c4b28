// How long a collective takes that the executor runs, by what was measured of it.
#pragma once

#include <cstdint>

#include "expedite/cost/cluster.h"

namespace expedite::cost {

/// Of a group with `ranks_per_node` ranks on each of `nodes` nodes, from the measured group of that shape, or
/// the most like it that also spans nodes or also does not; between measured sizes in proportion. Nothing for
/// a group of one rank. Throws Error when the cluster has nothing like it.
[[nodiscard]] CollectiveTime collective_time(const Cluster& cluster, schedule::Collective collective,
                                             std::int64_t nodes, std::int64_t ranks_per_node, double bytes);

/// What it takes for no bytes, nearly: seconds of the fewest that were measured.
[[nodiscard]] double collective_latency(const Cluster& cluster, schedule::Collective collective,
                                        std::int64_t nodes, std::int64_t ranks_per_node);

}  // namespace expedite::cost
