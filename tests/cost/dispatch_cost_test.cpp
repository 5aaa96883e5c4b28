#include "expedite/cost/dispatch_cost.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "expedite/base/error.h"
#include "expedite/base/random.h"

namespace expedite::cost {
namespace {

using schedule::Dispatcher;
using schedule::kDispatchers;

/// Links without latency, so that seconds are bytes over bandwidth.
Cluster cluster_of(std::int64_t nodes, std::int64_t ranks_per_node, double inter_bytes_per_s) {
  return {.name = "test",
          .nodes = nodes,
          .ranks_per_node = ranks_per_node,
          .devices = {{.memory_read_bytes_per_s = 2e10, .memory_copy_bytes_per_s = 1e10}},
          .links = {{.name = "intra_node",
                     .latency_s = 1e-30,
                     .message_rate_per_s = 1e30,
                     .bandwidth_bytes_per_s = 4e9,
                     .pair_bandwidth_bytes_per_s = 4e9},
                    {.name = "inter_node",
                     .latency_s = 1e-30,
                     .message_rate_per_s = 1e30,
                     .bandwidth_bytes_per_s = inter_bytes_per_s / static_cast<double>(ranks_per_node),
                     .pair_bandwidth_bytes_per_s = inter_bytes_per_s}}};
}

DispatchCase layer_on(int nodes, int ranks_per_node, std::int64_t experts, std::int64_t topk) {
  DispatchCase layer{.routing = {.experts = experts, .topk = topk}, .tokens = 256, .hidden = 8};
  const int ranks = nodes * ranks_per_node;
  for (std::int64_t e = 0; e < experts; ++e) {
    layer.rank_of_expert.push_back(static_cast<int>(e * ranks / experts));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    layer.node_of_rank.push_back(rank / ranks_per_node);
  }
  return layer;
}

/// Rows of one token, of rank 0, at each level, one way, averaged over all choices of topk experts.
struct Rows {
  double inter = 0.0;
  double intra = 0.0;
};
Rows count_rows(const DispatchCase& layer, Dispatcher dispatcher) {
  Rows rows;
  int choices = 0;
  for (std::uint32_t chosen = 0; chosen < (1U << layer.routing.experts); ++chosen) {
    if (std::popcount(chosen) != layer.routing.topk) {
      continue;
    }
    ++choices;
    std::set<int> ranks;
    std::set<int> nodes;
    for (std::size_t e = 0; e < layer.rank_of_expert.size(); ++e) {
      if ((chosen >> e) % 2 == 1) {
        const int rank = layer.rank_of_expert[e];
        const int node = layer.node_of_rank[static_cast<std::size_t>(rank)];
        if (dispatcher == Dispatcher::alltoall && rank != 0) {
          (node == 0 ? rows.intra : rows.inter) += 1.0;
        }
        ranks.insert(rank);
        nodes.insert(node);
      }
    }
    if (dispatcher == Dispatcher::zero_redundancy) {
      for (const int rank : ranks) {
        if (rank != 0) {
          (layer.node_of_rank[static_cast<std::size_t>(rank)] == 0 ? rows.intra : rows.inter) += 1.0;
        }
      }
    }
    if (dispatcher == Dispatcher::hierarchical || dispatcher == Dispatcher::hierarchical_dedup) {
      const int all = layer.node_of_rank.back() + 1;
      rows.inter += dispatcher == Dispatcher::hierarchical
                        ? all - 1
                        : static_cast<double>(nodes.size() - nodes.count(0));
      const int local_ranks = static_cast<int>(layer.node_of_rank.size()) / all;
      for (const int rank : ranks) {
        rows.intra += rank % local_ranks != 0 ? 1.0 : 0.0;  // the row is on each node at its first rank
      }
    }
  }
  return {rows.inter / choices, rows.intra / choices};
}

TEST(DispatchCost, BytesAreThoseOfEveryChoiceCounted) {
  for (const auto& [nodes, ranks] : {std::pair{1, 4}, {2, 2}, {4, 1}, {3, 2}}) {
    for (const std::int64_t experts : {6, 8, 12}) {
      for (const std::int64_t topk : {1, 2, 4, 6}) {
        // Counted for a token of rank 0, which stands for all when every rank holds as many experts.
        if (experts % (nodes * ranks) != 0) {
          continue;
        }
        const DispatchCase layer = layer_on(nodes, ranks, experts, topk);
        for (const Dispatcher dispatcher : kDispatchers) {
          const DispatchCost cost = dispatch_cost(cluster_of(nodes, ranks, 1e8), layer, dispatcher);
          const Rows rows = count_rows(layer, dispatcher);
          const double all = 2.0 * nodes * ranks * 256 * 8 * 2;  // both ways, ranks, tokens, row bytes
          EXPECT_NEAR(cost.inter_bytes, all * rows.inter, 1e-9 * all) << name_of(dispatcher);
          EXPECT_NEAR(cost.intra_bytes, all * rows.intra, 1e-9 * all) << name_of(dispatcher);
        }
      }
    }
  }
}

TEST(DispatchCost, EqualsWhatItShouldWhereDispatchersCoincide) {
  for (const std::vector<double>& weights : {std::vector<double>{}, zipf_weights(10, 1.0)}) {
    DispatchCase one_node = layer_on(1, 4, 10, 3);
    one_node.routing.weights = weights;
    const Cluster cluster = cluster_of(4, 4, 1e8);
    EXPECT_EQ(dispatch_cost(cluster, one_node, Dispatcher::hierarchical).seconds,
              dispatch_cost(cluster, one_node, Dispatcher::hierarchical_dedup).seconds);
    DispatchCase one_rank = layer_on(4, 1, 10, 3);
    one_rank.routing.weights = weights;
    const DispatchCost flat = dispatch_cost(cluster, one_rank, Dispatcher::zero_redundancy);
    const DispatchCost dedup = dispatch_cost(cluster, one_rank, Dispatcher::hierarchical_dedup);
    EXPECT_NEAR(flat.seconds, dedup.seconds, 1e-12 * flat.seconds);
    EXPECT_NEAR(flat.inter_bytes, dedup.inter_bytes, 1e-9 * flat.inter_bytes);
    EXPECT_EQ(dedup.intra_bytes, 0.0);
  }
}

TEST(DispatchCost, SecondsAreBytesOfTheBusiestOverBandwidth) {
  // 2 nodes of 2 ranks, top-1 of 4: a token goes to each rank with probability 1/4, a row is 16 bytes.
  const DispatchCase layer = layer_on(2, 2, 4, 1);
  const Cluster cluster = cluster_of(2, 2, 1e6);
  const double rank_bytes = 256 * 16 * 0.25;  // to one other rank
  const DispatchCost flat = dispatch_cost(cluster, layer, Dispatcher::alltoall);
  EXPECT_NEAR(flat.inter_seconds, 2 * 4 * rank_bytes / 1e6, 1e-12);  // four pairs cross each way
  EXPECT_NEAR(flat.intra_seconds, 2 * 2 * rank_bytes / 8e9, 1e-12);
  EXPECT_EQ(flat.seconds, flat.inter_seconds);
  const DispatchCost tokens = dispatch_cost(cluster, layer, Dispatcher::hierarchical);
  EXPECT_NEAR(tokens.inter_seconds, 2 * 2 * 256 * 16 / 1e6, 1e-12);
  EXPECT_NEAR(tokens.intra_seconds, 2 * 2 * 2 * rank_bytes / 1e10, 1e-12);
  EXPECT_NEAR(tokens.seconds, tokens.inter_seconds + tokens.intra_seconds, 1e-12);
  DispatchCase chunked = layer;
  chunked.chunks = 4;
  const DispatchCost overlapped = dispatch_cost(cluster, chunked, Dispatcher::hierarchical);
  EXPECT_NEAR(overlapped.seconds, tokens.inter_seconds + tokens.intra_seconds / 4, 1e-12);
}

TEST(DispatchCost, LatencyCountsForEveryChunkAndMessage) {
  Cluster cluster = cluster_of(4, 1, 1e6);
  DispatchCase layer = layer_on(4, 1, 4, 2);
  const double bulk = dispatch_cost(cluster, layer, Dispatcher::alltoall).seconds;
  cluster.links[1].latency_s = 0.5;
  cluster.links[1].message_rate_per_s = 10.0;
  layer.chunks = 3;
  EXPECT_NEAR(dispatch_cost(cluster, layer, Dispatcher::alltoall).seconds, bulk + 2 * 3 * (0.5 + 3 / 10.0),
              1e-9);
}

// The busiest rank is what everybody waits for: the same bytes on fewer ranks take longer.
TEST(DispatchCost, AHotRankCosts) {
  const Cluster cluster = cluster_of(4, 1, 1e6);
  DispatchCase even = layer_on(4, 1, 8, 1);
  DispatchCase hot = even;
  hot.routing.weights = zipf_weights(8, 2.0);
  EXPECT_GT(dispatch_cost(cluster, hot, Dispatcher::alltoall).seconds,
            1.5 * dispatch_cost(cluster, even, Dispatcher::alltoall).seconds);
  DispatchCase one_owner = even;
  one_owner.rank_of_expert.assign(8, 2);
  const DispatchCost cost = dispatch_cost(cluster, one_owner, Dispatcher::alltoall);
  EXPECT_NEAR(cost.seconds, 2 * 3 * 256 * 16 / 1e6, 1e-12);
  EXPECT_NEAR(cost.inter_bytes, 2.0 * 3 * 256 * 16, 1e-9);
}

TEST(DispatchCost, WorksForRandomPlacements) {
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    const Philox random(trial, stream_of("placement"));
    auto pick = [&, draw = std::uint64_t{0}](std::int64_t low, std::int64_t high) mutable {
      return low +
             static_cast<std::int64_t>(random.bits(draw++) % static_cast<std::uint64_t>(high - low + 1));
    };
    const int nodes = static_cast<int>(pick(1, 4));
    DispatchCase layer;
    layer.tokens = pick(0, 100);
    layer.hidden = pick(1, 64);
    layer.chunks = pick(1, 5);
    for (int node = 0; node < nodes; ++node) {
      layer.node_of_rank.insert(layer.node_of_rank.end(), static_cast<std::size_t>(pick(1, 3)), node);
    }
    layer.routing.experts = pick(1, 20);
    layer.routing.topk = pick(1, layer.routing.experts);
    if (trial % 2 == 1) {
      layer.routing.weights = zipf_weights(layer.routing.experts, 0.3 * static_cast<double>(pick(0, 5)));
    }
    for (std::int64_t e = 0; e < layer.routing.experts; ++e) {
      layer.rank_of_expert.push_back(static_cast<int>(pick(0, std::ssize(layer.node_of_rank) - 1)));
    }
    const Cluster cluster = cluster_of(nodes, 3, 1e8);
    const auto bytes = [&](Dispatcher each) { return dispatch_cost(cluster, layer, each).inter_bytes; };
    const double slack = 1e-7 * static_cast<double>(layer.tokens * layer.hidden);
    EXPECT_LE(bytes(Dispatcher::hierarchical_dedup), bytes(Dispatcher::hierarchical) + slack);
    EXPECT_LE(bytes(Dispatcher::hierarchical_dedup), bytes(Dispatcher::zero_redundancy) + slack);
    EXPECT_LE(bytes(Dispatcher::zero_redundancy), bytes(Dispatcher::alltoall) + slack);
    const DispatcherChoice choice = choose_dispatcher(cluster, layer);
    for (const Dispatcher each : kDispatchers) {
      const bool flat = each == Dispatcher::alltoall || each == Dispatcher::zero_redundancy;
      EXPECT_LE(choice.cost.seconds,
                1.031 / (flat ? 1.0 : 0.75) * dispatch_cost(cluster, layer, each).seconds);
    }
    EXPECT_TRUE(choice.reason.starts_with(name_of(choice.dispatcher))) << choice.reason;
  }
}

TEST(ChooseDispatcher, TakesTheFastestAndSaysWhy) {
  const DispatcherChoice choice = choose_dispatcher(cluster_of(2, 2, 1.25e8), layer_on(2, 2, 32, 8));
  EXPECT_EQ(choice.dispatcher, Dispatcher::hierarchical);  // 99.6 % of tokens want the other node: as good
  EXPECT_NE(choice.reason.find("between nodes (0.0625 GB/s per rank)"), std::string::npos) << choice.reason;
  EXPECT_NE(choice.reason.find(" ms alltoall,"), std::string::npos) << choice.reason;
  EXPECT_EQ(choice.reason.find('\n'), std::string::npos);
  // 95 % of tokens want the other node, and 1.4 of its ranks.
  EXPECT_EQ(choose_dispatcher(cluster_of(2, 2, 1.25e8), layer_on(2, 2, 32, 4)).dispatcher,
            Dispatcher::hierarchical_dedup);
}

TEST(ChooseDispatcher, TwoLevelsMustSaveAQuarter) {
  // 76 % of tokens want the other node, and 0.89 of its ranks.
  const DispatcherChoice choice = choose_dispatcher(cluster_of(2, 2, 1.25e8), layer_on(2, 2, 32, 2));
  EXPECT_EQ(choice.dispatcher, Dispatcher::zero_redundancy);
  EXPECT_NE(choice.reason.find("simpler than hierarchical_dedup"), std::string::npos) << choice.reason;
}

TEST(ChooseDispatcher, TakesTheSimplestOfEquals) {
  // One rank: nothing travels. One node, top-1: copies and ranks are the same.
  EXPECT_EQ(choose_dispatcher(cluster_of(1, 1, 1e8), layer_on(1, 1, 8, 2)).dispatcher, Dispatcher::alltoall);
  EXPECT_EQ(choose_dispatcher(cluster_of(4, 1, 1e8), layer_on(4, 1, 8, 1)).dispatcher, Dispatcher::alltoall);
  EXPECT_EQ(choose_dispatcher(cluster_of(4, 1, 1e8), layer_on(4, 1, 8, 2)).dispatcher,
            Dispatcher::zero_redundancy);
}

TEST(DispatchCost, RefusesWhatIsNotMeasuredOrMakesNoSense) {
  Cluster cluster = cluster_of(2, 2, 1e8);
  DispatchCase layer = layer_on(2, 2, 8, 2);
  layer.chunks = 0;
  EXPECT_THROW(static_cast<void>(dispatch_cost(cluster, layer, Dispatcher::alltoall)), Error);
  layer.chunks = 1;
  layer.node_of_rank = {0, 0, 2, 2};
  EXPECT_THROW(static_cast<void>(dispatch_cost(cluster, layer, Dispatcher::alltoall)), Error);
  layer.node_of_rank = {0, 0, 1, 1};
  cluster.links.pop_back();
  EXPECT_THROW(static_cast<void>(dispatch_cost(cluster, layer, Dispatcher::alltoall)), Error);
  cluster.devices.clear();
  EXPECT_THROW(static_cast<void>(dispatch_cost(cluster, layer, Dispatcher::alltoall)), Error);
}

}  // namespace
}  // namespace expedite::cost
