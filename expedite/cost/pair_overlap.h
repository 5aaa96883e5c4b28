// What a pair of micro-batches, one forward and one backward, leaves exposed of its exchanges.
#pragma once

#include <vector>

namespace expedite::cost {

/// Where one micro-batch of a pair is cut: compute, then an exchange that its next piece waits for, then
/// compute that does not wait and nothing waits for. Seconds. An exchange takes one level of links, then the
/// other, in the order of the piece.
struct PairPiece {
  double before = 0.0;
  double after = 0.0;
  bool inner_first = false;  // on its way back: inside nodes, then between them
};

struct PairTimes {
  std::vector<PairPiece> forward;   // of one layer
  std::vector<PairPiece> backward;  // likewise
  double between = 0.0;             // an exchange's seconds between nodes
  double within = 0.0;              // and inside them
};

/// Of one layer of each, among many like it. The pieces take turns as in schedule::build_pipeline_step,
/// backward first and spread where one has more; compute and the two levels are queues.
[[nodiscard]] double pair_exposed(const PairTimes& times);

}  // namespace expedite::cost
