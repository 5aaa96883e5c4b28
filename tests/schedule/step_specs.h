// Specifications of steps for tests of their builders.
#pragma once

#include <vector>

#include "expedite/schedule/step_spec.h"

namespace expedite::schedule {

/// One rank of a small job. Ranks of one node are neighbours: `nodes` says how many each has; empty: one
/// node.
[[nodiscard]] StepSpec spec_of(int rank, int world, int ep, std::vector<bool> sparse,
                               const std::vector<int>& nodes = {});

}  // namespace expedite::schedule
