#include "expedite/comm/grid_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "expedite/base/error.h"

namespace expedite::comm {

ExpertRange expert_range(std::int64_t experts, int ep_size, int ep_rank) {
  require(experts >= 0 && ep_size > 0 && ep_rank >= 0 && ep_rank < ep_size,
          "no share of {} experts for rank {} of {}", experts, ep_rank, ep_size);
  const std::int64_t share = experts / ep_size;
  const std::int64_t larger = experts % ep_size;  // ranks with one more
  return {.begin = ep_rank * share + std::min<std::int64_t>(ep_rank, larger),
          .count = share + (ep_rank < larger ? 1 : 0)};
}

int expert_owner(std::int64_t experts, int ep_size, std::int64_t expert) {
  require(ep_size > 0 && expert >= 0 && expert < experts, "there is no expert {} among {} on {} ranks",
          expert, experts, ep_size);
  const std::int64_t share = experts / ep_size;
  const std::int64_t larger = experts % ep_size;
  const std::int64_t in_larger = larger * (share + 1);  // experts on the ranks with one more
  return static_cast<int>(expert < in_larger ? expert / (share + 1) : larger + (expert - in_larger) / share);
}

GridLayout::GridLayout(int world_size, int expert_parallel_size)
    : world_size_(world_size), expert_parallel_size_(expert_parallel_size) {
  require(world_size > 0, "a job has at least one rank, not {}", world_size);
  if (expert_parallel_size < 1 || world_size % expert_parallel_size != 0) {
    std::vector<int> legal;
    for (int size = 1; size <= world_size; ++size) {
      if (world_size % size == 0) {
        legal.push_back(size);
      }
    }
    fail("parallel.expert_parallel_size {} does not divide the {} ranks of the job; use {}",
         expert_parallel_size, world_size, fmt::join(legal, ", "));
  }
}

std::vector<int> GridLayout::expert_parallel_ranks(int rank) const {
  std::vector<int> ranks(static_cast<std::size_t>(expert_parallel_size_));
  std::iota(ranks.begin(), ranks.end(), replica(rank) * expert_parallel_size_);
  return ranks;
}

std::vector<int> GridLayout::expert_data_parallel_ranks(int rank) const {
  std::vector<int> ranks;
  for (int other = expert_parallel_rank(rank); other < world_size_; other += expert_parallel_size_) {
    ranks.push_back(other);
  }
  return ranks;
}

std::vector<int> GridLayout::world_ranks() const {
  std::vector<int> ranks(static_cast<std::size_t>(world_size_));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

int Placement::nodes() const {
  return node_of.empty() ? 0 : *std::ranges::max_element(node_of) + 1;
}

Placement even_placement(const GridLayout& layout, int ranks_per_node) {
  require(ranks_per_node > 0, "{} ranks per node", ranks_per_node);
  Placement placement{.layout = layout, .node_of = {}};
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    placement.node_of.push_back(rank / ranks_per_node);
  }
  return placement;
}

}  // namespace expedite::comm
