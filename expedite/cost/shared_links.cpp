#include "expedite/cost/shared_links.h"

#include <algorithm>

namespace expedite::cost {

SharedLinks::Flow& SharedLinks::flow(std::int32_t meeting) {
  const auto index = static_cast<std::size_t>(meeting);
  if (index >= flows_.size()) {
    flows_.resize(index + 1);
  }
  return flows_[index];
}

void SharedLinks::begin(const TaskGraph& graph, const std::vector<TaskRun>& runs, std::int32_t meeting,
                        double seconds, double now, const Schedule& schedule) {
  Flow& begun = flow(meeting);
  begun.left = seconds;
  begun.since = now;
  begun.end = now + seconds;
  if (contention_ && seconds > 0.0) {
    for (const Node member : graph.meetings()[static_cast<std::size_t>(meeting)]) {
      const int link = runs[static_cast<std::size_t>(member)].cost.link;
      const schedule::Collective collective = graph.task(member).communication->collective;
      for (const int in : {0, 1}) {
        const auto other_way = in == 0 ? schedule::Collective::receive : schedule::Collective::send;
        if (link >= 0 && collective != other_way) {
          begun.uses.push_back({graph.rank_of(member), static_cast<std::size_t>(2 * link + in)});
          users(begun.uses.back()).push_back(meeting);
        }
      }
    }
  }
  schedule(meeting, begun.end);
  share_anew(std::vector<Use>(begun.uses), now, schedule);
}

bool SharedLinks::ends(std::int32_t meeting, double time) const {
  return flows_[static_cast<std::size_t>(meeting)].end == time;
}

void SharedLinks::end(std::int32_t meeting, double now, const Schedule& schedule) {
  flow(meeting).end = -1.0;  // what was foreseen for it before does not count
  const std::vector<Use> uses = std::move(flow(meeting).uses);
  for (const Use& use : uses) {
    std::erase(users(use), meeting);
  }
  share_anew(uses, now, schedule);
}

/// Of all that uses one of these links.
void SharedLinks::share_anew(const std::vector<Use>& uses, double now, const Schedule& schedule) {
  for (const Use& changed : uses) {
    for (const std::int32_t meeting : users(changed)) {
      Flow& shared = flow(meeting);
      double pace = 1.0;
      for (const Use& use : shared.uses) {
        pace = std::min(pace, 1.0 / static_cast<double>(users(use).size()));
      }
      if (pace != shared.pace) {
        shared.left -= (now - shared.since) * shared.pace;
        shared.since = now;
        shared.pace = pace;
        shared.end = now + std::max(shared.left, 0.0) / pace;
        schedule(meeting, shared.end);
      }
    }
  }
}

}  // namespace expedite::cost
