// How much communication the order of a layer's tasks leaves exposed at the least: from what its compute took
// and how many bytes its chunks had on the wire, without a look at when anything happened.
#pragma once

#include <cstdint>
#include <span>

#include "expedite/comm/link_probe.h"
#include "expedite/cost/chunk_overlap.h"
#include "expedite/schedule/ep_plan.h"
#include "expedite/tracing/trace.h"

namespace expedite::bench {

/// One run of a layer on one rank. Times on the wire are bytes over `bytes_per_s`, those of one level of
/// links; other seconds are those of the events.
struct LayerTimes {
  cost::ChunkTimes forward;
  cost::ChunkTimes backward;  // of no chunks when nothing ran backward
};
[[nodiscard]] LayerTimes layer_times(std::span<const tracing::TraceEvent> events, int chunks,
                                     comm::LinkLevel level, double bytes_per_s);

/// cost::overlap of both directions.
[[nodiscard]] double exposed_bound_s(const schedule::EpPlan& plan, const LayerTimes& times);

}  // namespace expedite::bench
