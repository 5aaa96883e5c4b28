#include "bench/routing_count.h"

#include <algorithm>
#include <set>

#include "expedite/base/error.h"

namespace expedite::bench {

std::vector<std::int64_t> RoutedTokens::expert_counts() const {
  std::vector<std::int64_t> counts(owner_of.size(), 0);
  for (const std::vector<std::int32_t>& of_rank : chosen) {
    for (const std::int32_t expert : of_rank) {
      ++counts[static_cast<std::size_t>(expert)];
    }
  }
  return counts;
}

RoutingCount count_routing(const RoutedTokens& tokens) {
  const auto node_of = [&](int rank) { return tokens.node_of[static_cast<std::size_t>(rank)]; };
  std::vector<std::vector<int>> ranks_of_node;
  std::vector<std::size_t> local_index;
  for (const int node : tokens.node_of) {
    ranks_of_node.resize(std::max(ranks_of_node.size(), static_cast<std::size_t>(node) + 1));
    std::vector<int>& ranks = ranks_of_node[static_cast<std::size_t>(node)];
    local_index.push_back(ranks.size());
    ranks.push_back(static_cast<int>(local_index.size()) - 1);
  }
  const auto rank_with_row = [&](int source, int node) {
    const std::vector<int>& ranks = ranks_of_node[static_cast<std::size_t>(node)];
    return node == node_of(source) ? source
                                   : ranks[local_index[static_cast<std::size_t>(source)] % ranks.size()];
  };

  RoutingCount count;
  const auto k = static_cast<std::size_t>(tokens.topk);
  for (int source = 0; source < static_cast<int>(tokens.chosen.size()); ++source) {
    const std::vector<std::int32_t>& chosen = tokens.chosen[static_cast<std::size_t>(source)];
    for (std::size_t token = 0; token < chosen.size() / k; ++token) {
      std::set<int> ranks;
      std::set<int> nodes;
      for (std::size_t j = 0; j < k; ++j) {
        const int owner = tokens.owner_of[static_cast<std::size_t>(chosen[token * k + j])];
        const int node = node_of(owner);
        ranks.insert(owner);
        nodes.insert(node);
        count.copies_to_other_ranks += owner != source;
        count.copies_to_other_nodes += node != node_of(source);
        count.copies_beside_row += owner != rank_with_row(source, node);
      }
      for (const int rank : ranks) {
        count.token_rank_pairs += rank != source;
        count.token_remote_rank_pairs += node_of(rank) != node_of(source);
        count.ranks_beside_row += rank != rank_with_row(source, node_of(rank));
      }
      for (const int node : nodes) {
        count.token_node_pairs += node != node_of(source);
      }
      count.token_other_nodes += static_cast<std::int64_t>(ranks_of_node.size()) - 1;
    }
  }
  return count;
}

RowTraffic rows_there_and_back(schedule::Dispatcher dispatcher, const RoutingCount& count) {
  switch (dispatcher) {
    case schedule::Dispatcher::alltoall:
      return {.intra_node = 2 * (count.copies_to_other_ranks - count.copies_to_other_nodes),
              .inter_node = 2 * count.copies_to_other_nodes};
    case schedule::Dispatcher::zero_redundancy:
      return {.intra_node = 2 * (count.token_rank_pairs - count.token_remote_rank_pairs),
              .inter_node = 2 * count.token_remote_rank_pairs};
    case schedule::Dispatcher::hierarchical:
      return {.intra_node = count.copies_beside_row + count.ranks_beside_row,
              .inter_node = 2 * count.token_other_nodes};
    case schedule::Dispatcher::hierarchical_dedup:
      return {.intra_node = count.copies_beside_row + count.ranks_beside_row,
              .inter_node = 2 * count.token_node_pairs};
  }
  fail("rows of a dispatcher that does not exist");
}

}  // namespace expedite::bench
