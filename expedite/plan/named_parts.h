// The parts of a step's time and of a rank's memory by the names that reports call them.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "expedite/plan/step_cost.h"

namespace expedite::plan {

using NamedParts = std::vector<std::pair<std::string_view, double>>;

/// They add up to StepSeconds::total; seconds.
[[nodiscard]] NamedParts parts_of(const StepSeconds& seconds);
/// They add up to Memory::total(); bytes.
[[nodiscard]] NamedParts parts_of(const Memory& memory);

}  // namespace expedite::plan
