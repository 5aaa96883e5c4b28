// What stays exposed of a chunked layer's communication, from what its chunks take and the order in which the
// schedule does them.
#pragma once

#include <vector>

#include "expedite/schedule/ep_plan.h"

namespace expedite::cost {

/// One direction of a layer in N chunks; seconds.
struct ChunkTimes {
  std::vector<double> out;      // [N] on the wire, to the experts
  std::vector<double> experts;  // [N] compute that waits for `out` and that `back` waits for
  std::vector<double> back;     // [N] on the wire
  std::vector<double> behind;   // [N] compute that nothing on the wire waits for; empty: none
  double first_cover = 0.0;     // compute under the first way out
  double last_cover = 0.0;      // compute under the last way back
};

struct Overlap {
  double seconds = 0.0;
  double exposed = 0.0;  // of these, compute waits for the wire
};

/// Compute and wire are two queues, each in the order of schedule::MoeLayer; a task begins when its queue is
/// free and what it waits for has ended, and nothing else delays it. So this is the least that such a
/// schedule can take with such tasks. Packing and unpacking count as part of `experts`.
[[nodiscard]] Overlap overlap(schedule::ChunkPipeline pipeline, int window, const ChunkTimes& times);

}  // namespace expedite::cost
