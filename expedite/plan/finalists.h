// The fastest of a search, simulated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "expedite/plan/search.h"
#include "expedite/plan/simulated_step.h"

namespace expedite::plan {

struct Finalist {
  Candidate candidate;                     // what the closed form says
  std::optional<SimulatedStep> simulated;  // if it was
  std::string not_simulated;               // why it could not be; empty if it was not tried

  /// By simulation if there is one.
  [[nodiscard]] double step_seconds() const {
    return simulated ? simulated->seconds : candidate.cost.seconds.total;
  }
};

/// The first `count` of `best` simulated, `threads` at a time; all of them, the fastest first by what is
/// known.
[[nodiscard]] std::vector<Finalist> simulate_finalists(const CostContext& context,
                                                       const std::vector<Candidate>& best, std::int64_t count,
                                                       int threads);

}  // namespace expedite::plan
