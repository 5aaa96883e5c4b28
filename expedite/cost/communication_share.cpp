#include "expedite/cost/communication_share.h"

#include <algorithm>

namespace expedite::cost {

using schedule::Op;
using schedule::Pass;
using schedule::Stream;

std::string_view name_of(CommunicationKind kind) {
  switch (kind) {
    case CommunicationKind::expert_parallel:
      return "expert_parallel";
    case CommunicationKind::pipeline:
      return "pipeline";
    case CommunicationKind::gradients:
      return "gradients";
    case CommunicationKind::other:
      return "other";
  }
  return "?";
}

CommunicationKind kind_of(Op communication) {
  switch (communication) {
    case Op::metadata:
    case Op::dispatch:
    case Op::combine:
    case Op::retire:
      return CommunicationKind::expert_parallel;
    case Op::send:
    case Op::receive:
      return CommunicationKind::pipeline;
    case Op::reduce_dense:
    case Op::reduce_experts:
    case Op::gather_weights:
      return CommunicationKind::gradients;
    default:
      return CommunicationKind::other;
  }
}

Window steady_state(const RankTimes& rank) {
  std::int64_t begin = std::numeric_limits<std::int64_t>::max();
  std::int64_t end = 0;
  for (const tracing::TraceEvent& event : rank.events) {
    if (event.stream == Stream::compute && event.pass == Pass::input_grad) {
      begin = std::min(begin, event.begin);
    } else if (event.stream == Stream::compute && event.pass == Pass::forward) {
      end = std::max(end, event.end);
    }
  }
  return begin < end ? Window{static_cast<double>(begin) * 1e-9, static_cast<double>(end) * 1e-9}
                     : Window{0.0, 0.0};
}

CommunicationShare communication_share(const RankTimes& rank, CommunicationKind kind, const Window& window) {
  const auto inside = [&](double begin, double end) {
    return std::max(0.0, std::min(end, window.end) - std::max(begin, window.begin));
  };
  CommunicationShare share;
  for (const tracing::TraceEvent& event : rank.events) {
    if (is_communication(event.stream) && kind_of(event.op) == kind) {
      share.under_way +=
          inside(static_cast<double>(event.begin) * 1e-9, static_cast<double>(event.end) * 1e-9);
    }
  }
  for (const Exposure& exposure : rank.exposures) {
    if (kind_of(exposure.op) == kind) {
      share.exposed += inside(exposure.begin, exposure.end);
    }
  }
  return share;
}

CommunicationShare communication_share(const Simulation& simulation, CommunicationKind kind,
                                       bool only_steady_state) {
  CommunicationShare all;
  for (const RankTimes& rank : simulation.ranks) {
    const CommunicationShare share =
        communication_share(rank, kind, only_steady_state ? steady_state(rank) : Window{});
    all.under_way += rank.multiplicity * share.under_way;
    all.exposed += rank.multiplicity * share.exposed;
  }
  return all;
}

}  // namespace expedite::cost
