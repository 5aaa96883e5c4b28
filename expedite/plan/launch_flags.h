// A strategy as the command-line flags of training programs.
#pragma once

#include <string>

#include "expedite/plan/launch_rules.h"
#include "expedite/plan/search.h"

namespace expedite::plan {

/// Leaves out of a space what the program cannot do. Throws Error when it can do nothing with the model, and
/// says why.
void keep_what_it_can(Launcher launcher, const CostContext& context, SearchSpace& space);

/// Comments that begin with # and name the releases that accept the flags and the environment that they need;
/// then one flag a line with its value, quoted where a shell would read it otherwise. They say how layers are
/// split over the pipeline as the plan assumed it. Throws Error when the program cannot do what the strategy
/// says, naming the knob, why, and what it can.
[[nodiscard]] std::string launch_flags(Launcher launcher, const CostContext& context,
                                       const Strategy& strategy);

}  // namespace expedite::plan
