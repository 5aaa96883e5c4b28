#include "expedite/comm/process_grid.h"

#include <algorithm>
#include <map>

#include "expedite/base/error.h"
#include "expedite/comm/collectives.h"

namespace expedite::comm {

ProcessGrid::ProcessGrid(const Communicator& world, int expert_parallel_size, std::span<const int> node_of)
    : layout_(world.size(), expert_parallel_size),
      world_(world.duplicate("world")),
      expert_parallel_(world.split(layout_.replica(world.rank()), world.rank(), "ep")),
      expert_data_parallel_(
          world.split(layout_.expert_parallel_rank(world.rank()), world.rank(), "expert_dp")) {
  require(node_of.empty() || node_of.size() == static_cast<std::size_t>(world.size()),
          "the nodes of {} ranks for {}", node_of.size(), world.size());
  const Communicator node =
      node_of.empty() ? world.split_by_node("node")
                      : world.split(node_of[static_cast<std::size_t>(world.rank())], world.rank(), "node");
  local_rank_ = node.rank();
  local_size_ = node.size();
  const std::int64_t lowest = all_reduce<std::int64_t>(node, world.rank(), ReduceOp::min);
  std::map<std::int64_t, int> number;  // of the node whose lowest rank is the key
  for (const std::int64_t leader : all_gather(world, lowest)) {
    const auto [entry, added] = number.try_emplace(leader, nodes_);
    nodes_ += added ? 1 : 0;
    node_of_.push_back(entry->second);
  }
}

bool ProcessGrid::inside_one_node(std::span<const int> ranks) const {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int member) { return node_of(member) == node_of(ranks.front()); });
}

}  // namespace expedite::comm
