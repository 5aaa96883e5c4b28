#include "bench/routing_count.h"

#include <gtest/gtest.h>

namespace expedite::bench {
namespace {

using schedule::Dispatcher;

/// Nodes {0, 1} and {2, 3}; experts 0 and 1 on rank 0, 2 and 3 on rank 1, and so on.
RoutedTokens two_by_two(std::int64_t topk, std::vector<std::vector<std::int32_t>> chosen) {
  return {.node_of = {0, 0, 1, 1},
          .owner_of = {0, 0, 1, 1, 2, 2, 3, 3},
          .topk = topk,
          .chosen = std::move(chosen)};
}

RowTraffic rows(Dispatcher dispatcher, const RoutedTokens& tokens) {
  return rows_there_and_back(dispatcher, count_routing(tokens));
}

TEST(RoutingCount, OneTokenToEveryKindOfPlace) {
  // Of rank 0: itself once, its neighbour twice, rank 2 (its relay) once, rank 3 twice.
  const RoutedTokens tokens = two_by_two(6, {{0, 2, 3, 4, 6, 7}, {}, {}, {}});
  const RoutingCount count = count_routing(tokens);
  EXPECT_EQ(count.copies_to_other_ranks, 5);
  EXPECT_EQ(count.copies_to_other_nodes, 3);
  EXPECT_EQ(count.token_rank_pairs, 3);
  EXPECT_EQ(count.token_remote_rank_pairs, 2);
  EXPECT_EQ(count.token_node_pairs, 1);
  EXPECT_EQ(count.token_other_nodes, 1);
  EXPECT_EQ(count.copies_beside_row, 4);  // two on rank 1, two on rank 3
  EXPECT_EQ(count.ranks_beside_row, 2);

  EXPECT_EQ(rows(Dispatcher::alltoall, tokens), (RowTraffic{.intra_node = 4, .inter_node = 6}));
  EXPECT_EQ(rows(Dispatcher::zero_redundancy, tokens), (RowTraffic{.intra_node = 2, .inter_node = 4}));
  EXPECT_EQ(rows(Dispatcher::hierarchical, tokens), (RowTraffic{.intra_node = 6, .inter_node = 2}));
  EXPECT_EQ(rows(Dispatcher::hierarchical_dedup, tokens), (RowTraffic{.intra_node = 6, .inter_node = 2}));
  EXPECT_EQ(tokens.expert_counts(), (std::vector<std::int64_t>{1, 0, 1, 1, 1, 0, 1, 1}));
}

TEST(RoutingCount, ATokenThatStaysCostsOnlyTheDispatcherThatSendsAll) {
  const RoutedTokens tokens = two_by_two(2, {{}, {}, {}, {6, 7, 7, 6}});
  for (const Dispatcher dispatcher : schedule::kDispatchers) {
    EXPECT_EQ(rows(dispatcher, tokens),
              (RowTraffic{.inter_node = dispatcher == Dispatcher::hierarchical ? 4 : 0}))
        << name_of(dispatcher);
  }
}

TEST(RoutingCount, NodesOfDifferentSizesRelayModulo) {
  // Ranks 0, 1 and 2 on one node, 3 alone. Rank 2's row for node 1 goes to rank 3, rank 3's for node 0 to 0.
  const RoutedTokens tokens{
      .node_of = {0, 0, 0, 1}, .owner_of = {0, 1, 2, 3}, .topk = 2, .chosen = {{}, {}, {3, 1}, {0, 1}}};
  const RoutingCount count = count_routing(tokens);
  EXPECT_EQ(count.token_node_pairs, 2);
  EXPECT_EQ(count.token_remote_rank_pairs, 3);
  EXPECT_EQ(count.copies_beside_row, 2);  // expert 1, both times
  EXPECT_EQ(count.ranks_beside_row, 2);
}

TEST(RoutingCount, WithOneChoiceNothingIsThereTwice) {
  const RoutedTokens tokens = two_by_two(1, {{5, 1, 2}, {7}, {}, {0, 4}});
  EXPECT_EQ(rows(Dispatcher::alltoall, tokens), rows(Dispatcher::zero_redundancy, tokens));
  EXPECT_EQ(rows(Dispatcher::alltoall, tokens).inter_node,
            rows(Dispatcher::hierarchical_dedup, tokens).inter_node);
}

}  // namespace
}  // namespace expedite::bench
