// What a plan says to people and to programs.
#pragma once

#include <string>

#include "expedite/plan/finalists.h"

namespace expedite::plan {

/// What takes the most of a step, in words: "matmul 61 %".
[[nodiscard]] std::string bound_of(const StepSeconds& seconds);

/// Of all-to-alls, the share that nothing hides; of the step, the pipeline's bubble.
[[nodiscard]] double exposed_expert_fraction(const StepSeconds& seconds);
[[nodiscard]] double bubble_fraction(const StepSeconds& seconds);

/// The table of the best, and how many were costed, pruned and rejected and why.
[[nodiscard]] std::string describe(const SearchResult& result, const std::vector<Finalist>& finalists,
                                   double memory_limit);
/// Keys costed, pruned, seconds, rejected, strategies[] with every knob, step_s, tokens_per_s_per_device,
/// mfu, memory_gib, exposed_ep_fraction, bubble_fraction and `simulated`: where true, these are of the
/// simulation, but memory_gib, which is the closed form's; estimated_step_s is the closed form's.
[[nodiscard]] std::string to_json(const SearchResult& result, const std::vector<Finalist>& finalists);

/// Time and memory of one strategy by cause, and what every other value of each knob would change, the
/// largest gains first.
[[nodiscard]] std::string explain_strategy(const CostContext& context, const Strategy& strategy,
                                           const SearchSpace& space, double memory_limit);

}  // namespace expedite::plan
