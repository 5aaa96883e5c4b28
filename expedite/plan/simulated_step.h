// One step of a strategy, simulated on all its unlike ranks with the closed form's own costs.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "expedite/cost/simulator.h"
#include "expedite/plan/step_cost.h"
#include "expedite/plan/step_schedules.h"
#include "expedite/tracing/trace_json.h"

namespace expedite::plan {

/// A rank of one kind. The parts of `seconds` add up to the step; expert_wire is all that was under way.
struct SimulatedRank {
  RankKind kind;
  int rank = 0;
  StepSeconds seconds;
  Memory memory;     // activations and communication at the peak of each, as the schedule holds them
  Memory estimated;  // the closed form's, of the same layers on the stage
  std::array<double, schedule::kOps> exposed_by_op{};  // seconds
};

/// Share of all-to-alls that compute did not wait for; 1 where there are none.
struct HiddenExchanges {
  double steady_state = 1.0;  // from each rank's first input gradients to its last forward
  double whole_step = 1.0;
};

struct SimulatedStep {
  double seconds = 0.0;
  double tokens_per_s_per_device = 0.0;
  double mfu = 0.0;
  double memory = 0.0;            // bytes of the fullest rank
  double bubble_fraction = 0.0;   // of the time of all ranks
  double exposed_fraction = 0.0;  // likewise, all communication that compute waited for
  HiddenExchanges hidden;
  std::vector<SimulatedRank> ranks;
  StepCost estimate;  // the closed form's
  std::int64_t tasks = 0;
  double took_seconds = 0.0;               // to build and simulate
  std::vector<tracing::RankTrace> traces;  // if asked for

  /// The rank of the most work.
  [[nodiscard]] const SimulatedRank& busiest() const;
  [[nodiscard]] const SimulatedRank& fullest() const;
};

/// The strategy must be legal. Throws Error naming the knob where its schedules cannot be built.
[[nodiscard]] SimulatedStep simulate_step(const CostContext& context, const Strategy& strategy,
                                          bool with_traces = false);

}  // namespace expedite::plan
