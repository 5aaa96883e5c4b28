#include "expedite/moe/expert_layout.h"

#include "expedite/base/error.h"

namespace expedite::moe {

ExpertLayout::ExpertLayout(std::span<const std::int64_t> first_expert, std::span<const int> node, int rank,
                           schedule::Dispatcher dispatcher)
    : rank_(rank),
      local_index_(node.size()),
      row_per_copy_(dispatcher == schedule::Dispatcher::alltoall),
      every_node_(dispatcher == schedule::Dispatcher::hierarchical) {
  require(first_expert.size() == node.size() + 1, "{} bounds of experts do not fit {} ranks",
          first_expert.size(), node.size());
  const bool knows_nodes = dispatcher == schedule::Dispatcher::hierarchical ||
                           dispatcher == schedule::Dispatcher::hierarchical_dedup;
  for (std::size_t r = 0; r < node.size(); ++r) {
    owner_.insert(owner_.end(), static_cast<std::size_t>(first_expert[r + 1] - first_expert[r]),
                  static_cast<std::int32_t>(r));
    const auto of = static_cast<std::size_t>(knows_nodes ? node[r] : static_cast<int>(r));
    node_.push_back(static_cast<int>(of));
    if (of >= ranks_of_node_.size()) {
      ranks_of_node_.resize(of + 1);
    }
    local_index_[r] = static_cast<int>(ranks_of_node_[of].size());
    ranks_of_node_[of].push_back(static_cast<int>(r));
  }
  const auto self = static_cast<std::size_t>(rank);
  first_local_expert_ = first_expert[self];
  local_experts_ = first_expert[self + 1] - first_expert[self];
}

int ExpertLayout::relay(int source, int node) const {
  if (this->node(source) == node) {
    return source;
  }
  const std::span<const int> ranks = ranks_of_node(node);
  return ranks[static_cast<std::size_t>(local_index(source)) % ranks.size()];
}

}  // namespace expedite::moe
