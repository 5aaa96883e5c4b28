// What a simulated step says to people and to programs.
#pragma once

#include <string>

#include "expedite/plan/simulated_step.h"

namespace expedite::plan {

/// Step, bubble, exposed communication and memory, beside the closed form's.
[[nodiscard]] std::string describe(const SimulatedStep& step, const Strategy& strategy, double memory_limit);
[[nodiscard]] std::string to_json(const SimulatedStep& step, const Strategy& strategy);

}  // namespace expedite::plan
