// A strategy as the command-line flags of training programs.
#pragma once

#include <string>

#include "expedite/plan/search.h"
#include "expedite/plan/strategy.h"
#include "expedite/plan/transformer.h"

namespace expedite::plan {

enum class Launcher : std::uint8_t { megatron, mindspeed };

/// Leaves out of a space what the program cannot do.
void keep_what_it_can(Launcher launcher, SearchSpace& space);

/// One flag a line, with its value. Throws Error when the program cannot do what the strategy says, naming
/// the knob and what it can.
[[nodiscard]] std::string launch_flags(Launcher launcher, const Strategy& strategy, const Transformer& model,
                                       const Workload& workload);

}  // namespace expedite::plan
