// How much of a simulated rank's communication ran under compute.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "expedite/cost/simulator.h"

namespace expedite::cost {

enum class CommunicationKind : std::uint8_t {
  expert_parallel,  // dispatch and combine, both ways, and the metadata that they need
  pipeline,         // between stages
  gradients,        // gradient reduction, gathering of weights
  other,            // sums over the whole step
};
inline constexpr int kCommunicationKinds = 4;
[[nodiscard]] std::string_view name_of(CommunicationKind kind);
[[nodiscard]] CommunicationKind kind_of(schedule::Op communication);

struct Window {
  double begin = 0.0;
  double end = std::numeric_limits<double>::infinity();
};

/// From a rank's first input gradients to the end of its last forward: between warm-up and cool-down. Needs
/// SimulationOptions::events. Empty (begin 0, end 0) where there is no such time.
[[nodiscard]] Window steady_state(const RankTimes& rank);

struct CommunicationShare {
  double under_way = 0.0;  // seconds, of all streams together
  double exposed = 0.0;    // of them compute had nothing to run
  /// 1 where there is none.
  [[nodiscard]] double hidden() const { return under_way > 0.0 ? 1.0 - exposed / under_way : 1.0; }
};

/// Within the window. Needs SimulationOptions::events.
[[nodiscard]] CommunicationShare communication_share(const RankTimes& rank, CommunicationKind kind,
                                                     const Window& window = {});
/// Of all ranks, each counted as often as it stands for; in the steady state of each, or in the whole step.
[[nodiscard]] CommunicationShare communication_share(const Simulation& simulation, CommunicationKind kind,
                                                     bool only_steady_state);

}  // namespace expedite::cost
