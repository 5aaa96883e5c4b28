// Which layers lie on which virtual stage of a pipeline, so that none has more to do than it must.
#pragma once

#include <span>
#include <vector>

namespace expedite::cost {

/// Cuts a row of items (embedding, layers, head) with these costs into `parts` runs of at least one item: of
/// all ways to cut, one whose largest run costs the least; of those, the one with the least sum of squares,
/// so that the other runs are even too. Exact, by dynamic programming in O(items² parts). Returns parts + 1
/// bounds: run q is [bounds[q], bounds[q + 1]), as schedule::PipelineSpec::bounds. Throws Error when there
/// are fewer items than parts, no parts, or a cost that is negative or not a number.
[[nodiscard]] std::vector<int> balanced_bounds(std::span<const double> costs, int parts);

}  // namespace expedite::cost
