// How many rows a dispatcher has to move, counted from where tokens' experts are and nothing else: what the
// bytes that were really sent are held against.
#pragma once

#include <cstdint>
#include <vector>

#include "expedite/base/row_traffic.h"
#include "expedite/schedule/dispatcher.h"

namespace expedite::bench {

/// Where ranks and experts are, and what tokens chose.
struct RoutedTokens {
  std::vector<int> node_of;   // [R] the node of each rank
  std::vector<int> owner_of;  // [E] the rank that holds each expert
  std::int64_t topk = 1;
  std::vector<std::vector<std::int32_t>> chosen;  // [R] [T, k] of each rank, a token's choices all different

  /// [E] tokens of all ranks that chose each expert.
  [[nodiscard]] std::vector<std::int64_t> expert_counts() const;
};

/// Over the tokens of all ranks; "other" means other than the token's own.
struct RoutingCount {
  std::int64_t copies_to_other_ranks = 0;  // a copy for each expert that the token chose
  std::int64_t copies_to_other_nodes = 0;
  std::int64_t token_rank_pairs = 0;         // distinct (token, other rank)
  std::int64_t token_remote_rank_pairs = 0;  // those whose rank is on another node
  std::int64_t token_node_pairs = 0;         // distinct (token, other node)
  std::int64_t token_other_nodes = 0;        // the same if every token wanted every node
  // Inside a node one rank has the row: the token's own, or on another node the one with its local index
  // (modulo the node's ranks).
  std::int64_t copies_beside_row = 0;  // for experts of other ranks than that
  std::int64_t ranks_beside_row = 0;   // distinct (token, rank) of the same
};
[[nodiscard]] RoutingCount count_routing(const RoutedTokens& tokens);

/// Rows to the experts and back, between ranks. The hierarchical dispatchers read rows inside a node, each
/// expert's copy on its own, and read back one sum for each rank that had any.
[[nodiscard]] RowTraffic rows_there_and_back(schedule::Dispatcher dispatcher, const RoutingCount& count);

}  // namespace expedite::bench
