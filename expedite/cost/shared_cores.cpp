#include "expedite/cost/shared_cores.h"

#include <algorithm>
#include <map>

#include "expedite/base/error.h"

namespace expedite::cost {

SharedCores::SharedCores(std::vector<int> node_of, const CoreSharing& sharing)
    : node_of_(std::move(node_of)), sharing_(sharing), running_(node_of_.size()), uses_(node_of_.size()) {
  for (const int node : node_of_) {
    require(node >= 0, "a rank on node {}", node);
    const auto index = static_cast<std::size_t>(node);
    ranks_of_node_.resize(std::max(ranks_of_node_.size(), index + 1), 0.0);
    ranks_of_node_[index] += 1.0;
  }
  computing_.assign(ranks_of_node_.size(), 0.0);
}

void SharedCores::begin(const TaskGraph& graph, Node node, double seconds, double now) {
  const std::size_t rank = graph.rank_of(node);
  running_[rank] = Running{.node = node, .left = seconds, .since = now};
  computing_[static_cast<std::size_t>(node_of_[rank])] += 1.0;
}

bool SharedCores::ends(const TaskGraph& graph, Node node, double time) const {
  const std::optional<Running>& running = running_[graph.rank_of(node)];
  return running && running->node == node && running->end == time;
}

void SharedCores::end(const TaskGraph& graph, Node node) {
  const std::size_t rank = graph.rank_of(node);
  running_[rank].reset();
  computing_[static_cast<std::size_t>(node_of_[rank])] -= 1.0;
}

void SharedCores::communicate(std::size_t rank, int link, double compute_share, int sign) {
  if (sign > 0) {
    uses_[rank].push_back({link, compute_share});
    return;
  }
  const auto found = std::ranges::find_if(
      uses_[rank], [&](const Use& use) { return use.link == link && use.share == compute_share; });
  uses_[rank].erase(found);
}

double SharedCores::pace_of(std::size_t rank) const {
  const auto node = static_cast<std::size_t>(node_of_[rank]);
  const auto nodes = static_cast<double>(ranks_of_node_.size());
  const auto active =
      static_cast<double>(std::ranges::count_if(computing_, [](double ranks) { return ranks > 0.0; }));
  // Of a node's n ranks n / sharing run at a time.
  double pace = std::min(1.0, ranks_of_node_[node] / sharing_.node / computing_[node]) *
                std::min(1.0, nodes / sharing_.cluster / active);
  // Two communications on one link carry no more than one.
  std::map<int, double> share;
  for (const Use& use : uses_[rank]) {
    const auto [entry, added] = share.emplace(use.link, use.share);
    entry->second = std::min(entry->second, use.share);
  }
  for (const auto& [link, of_link] : share) {
    pace *= of_link;
  }
  return pace;
}

void SharedCores::share_anew(double now, const Schedule& schedule) {
  for (std::size_t rank = 0; rank < running_.size(); ++rank) {
    if (!running_[rank]) {
      continue;
    }
    Running& running = *running_[rank];
    const double pace = pace_of(rank);
    if (pace != running.pace) {
      running.left -= (now - running.since) * running.pace;
      running.since = now;
      running.pace = pace;
      running.end = now + std::max(running.left, 0.0) / pace;
      schedule(running.node, running.end);
    }
  }
}

}  // namespace expedite::cost
