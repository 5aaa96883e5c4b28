// Specifications of steps for tests of their builders.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "expedite/schedule/step_spec.h"

namespace expedite::schedule {

/// One rank of a small job. Ranks of one node are neighbours: `nodes` says how many each has; empty: one
/// node.
[[nodiscard]] StepSpec spec_of(int rank, int world, int ep, std::vector<bool> sparse,
                               const std::vector<int>& nodes = {});

/// Sizes for StepSpec::bytes in bf16: experts' rows of `ffn` inside, all others of `hidden`.
[[nodiscard]] std::function<std::int64_t(Role, std::int64_t)> bytes_of_rows(std::int64_t hidden,
                                                                            std::int64_t ffn);

}  // namespace expedite::schedule
