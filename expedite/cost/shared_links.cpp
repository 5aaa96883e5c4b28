#include "expedite/cost/shared_links.h"

#include <algorithm>

namespace expedite::cost {

SharedLinks::Flow& SharedLinks::flow(std::int32_t which) {
  const auto index = static_cast<std::size_t>(which);
  if (index >= flows_.size()) {
    flows_.resize(index + 1);
  }
  return flows_[index];
}

void SharedLinks::begin(const TaskGraph& graph, const std::vector<TaskRun>& runs, std::int32_t which,
                        std::span<const Node> members, double seconds, double now, const Schedule& schedule) {
  Flow& begun = flow(which);
  begun.left = seconds;
  begun.pace = 1.0;
  begun.factor = 1.0;
  begun.wire = 0.0;
  begun.rest = 0.0;
  begun.since = now;
  if (contention_ && seconds > 0.0) {
    for (const Node member : members) {
      const TaskCost& cost = runs[static_cast<std::size_t>(member)].cost;
      const int link = cost.link;
      begun.wire = std::max(begun.wire, 1.0 - std::min(cost.latency_seconds / seconds, 1.0));
      begun.rest = std::max(begun.rest, cost.rest_seconds);
      const schedule::Collective collective = graph.task(member).communication->collective;
      for (const int in : {0, 1}) {
        const auto other_way = in == 0 ? schedule::Collective::receive : schedule::Collective::send;
        if (link >= 0 && collective != other_way) {
          begun.uses.push_back({graph.rank_of(member), static_cast<std::size_t>(2 * link + in)});
          users(begun.uses.back()).push_back(which);
        }
      }
    }
  }
  double unrest = 0.0;
  for (const Use& use : begun.uses) {
    const bool alone = users(use).size() == 1;
    unrest = std::max(unrest, alone ? unrest_[use.rank][use.way].left(now) : begun.rest);
  }
  begun.left += std::min(unrest, begun.rest);
  begun.end = now + begun.left;
  schedule(which, begun.end);
  share_anew(std::vector<Use>(begun.uses), now, schedule);
}

bool SharedLinks::ends(std::int32_t which, double time) const {
  return flows_[static_cast<std::size_t>(which)].end == time;
}

void SharedLinks::end(std::int32_t which, double now, const Schedule& schedule) {
  flow(which).end = -1.0;  // what was foreseen for it before does not count
  const std::vector<Use> uses = std::move(flow(which).uses);
  for (const Use& use : uses) {
    std::erase(users(use), which);
    Unrest& unrest = unrest_[use.rank][use.way];
    unrest = {std::max(unrest.left(now), flow(which).rest), now};
  }
  share_anew(uses, now, schedule);
}

void SharedLinks::set_factor(std::int32_t which, double factor, double now, const Schedule& schedule) {
  if (factor != flow(which).factor) {
    flow(which).factor = factor;
    set_pace(which, now, schedule);
    share_anew(std::vector<Use>(flow(which).uses), now, schedule);
  }
}

/// Of all that uses one of these links.
void SharedLinks::share_anew(const std::vector<Use>& uses, double now, const Schedule& schedule) {
  for (const Use& changed : uses) {
    for (const std::int32_t which : users(changed)) {
      set_pace(which, now, schedule);
    }
  }
}

double SharedLinks::others(std::int32_t which, const Use& use) {
  double sum = 0.0;
  for (const std::int32_t other : users(use)) {
    sum += other == which ? 0.0 : flow(other).wire * flow(other).factor;
  }
  return sum;
}

void SharedLinks::set_pace(std::int32_t which, double now, const Schedule& schedule) {
  Flow& shared = flow(which);
  double most = 0.0;
  for (const Use& use : shared.uses) {
    most = std::max(most, others(which, use));
  }
  const double pace = 1.0 / (1.0 / shared.factor + shared.wire * most);
  if (pace != shared.pace) {
    shared.left -= (now - shared.since) * shared.pace;
    shared.since = now;
    shared.pace = pace;
    shared.end = now + std::max(shared.left, 0.0) / pace;
    schedule(which, shared.end);
  }
}

}  // namespace expedite::cost
