#include "expedite/cost/chunk_choice.h"

#include <gtest/gtest.h>

#include "expedite/base/error.h"
#include "expedite/cost/matmul_cost.h"

namespace expedite::cost {
namespace {

using schedule::ChunkPipeline;
using schedule::MoeRecompute;

/// Two nodes of one rank. Products at 100 GFLOP/s whatever their shape.
Cluster cluster_of(double bytes_per_s) {
  Device device{.memory_read_bytes_per_s = 2e10, .memory_copy_bytes_per_s = 1e10};
  device.matmul.push_back({.dtype = DType::bf16, .peak_flops_per_s = 1e11});
  return {.name = "test",
          .nodes = 2,
          .ranks_per_node = 1,
          .devices = {device},
          .links = {{.name = "inter_node",
                     .latency_s = 1e-4,
                     .message_rate_per_s = 1e5,
                     .bandwidth_bytes_per_s = bytes_per_s,
                     .pair_bandwidth_bytes_per_s = bytes_per_s}}};
}

ExpertLayer layer_of(std::int64_t tokens) {
  ExpertLayer layer{.dispatch = {.routing = {.experts = 16, .topk = 4},
                                 .node_of_rank = {0, 1},
                                 .tokens = tokens,
                                 .hidden = 1024},
                    .ffn = 512};
  for (int expert = 0; expert < 16; ++expert) {
    layer.dispatch.rank_of_expert.push_back(expert / 8);
  }
  return layer;
}

TEST(MatmulCost, InterpolatesBetweenMeasuredRows) {
  Device device;
  device.matmul.push_back({.dtype = DType::bf16,
                           .peak_flops_per_s = 9e9,
                           .shapes = {{.m = 16, .n = 64, .k = 32, .flops_per_s = 1e9},
                                      {.m = 64, .n = 64, .k = 32, .flops_per_s = 3e9},
                                      {.m = 64, .n = 4096, .k = 32, .flops_per_s = 7e9}}});
  const auto rate = [&](std::int64_t m, std::int64_t n) {
    return 2.0 * static_cast<double>(m * n * 32) / matmul_seconds(device, DType::bf16, m, n, 32);
  };
  EXPECT_DOUBLE_EQ(rate(16, 64), 1e9);
  EXPECT_DOUBLE_EQ(rate(32, 64), 2e9);
  EXPECT_DOUBLE_EQ(rate(64, 64), 3e9);
  EXPECT_DOUBLE_EQ(rate(1, 64), 1e9);
  EXPECT_DOUBLE_EQ(rate(1000, 80), 3e9);
  EXPECT_DOUBLE_EQ(rate(1000, 3000), 7e9);
  EXPECT_EQ(matmul_seconds(device, DType::bf16, 0, 64, 32), 0.0);
  EXPECT_THROW((void)matmul_seconds(device, DType::f32, 1, 1, 1), Error);
  device.matmul.front().shapes.clear();
  EXPECT_DOUBLE_EQ(rate(5, 7), 9e9);
}

TEST(ChunkChoice, ASlowLinkWantsMoreChunksThanAFastOne) {
  const ExpertLayer layer = layer_of(2048);
  EXPECT_EQ(choose_chunks(cluster_of(1e12), layer).chunks, 1);
  EXPECT_GE(choose_chunks(cluster_of(2.5e8), layer).chunks, 3);
}

TEST(ChunkChoice, FewTokensStayTogether) {
  EXPECT_EQ(choose_chunks(cluster_of(2.5e8), layer_of(1)).chunks, 1);
  EXPECT_EQ(choose_chunks(cluster_of(2.5e8), layer_of(0)).chunks, 1);
}

TEST(ChunkChoice, IsTheBestOfItsCandidates) {
  for (const double link : {1e8, 2.5e8, 1e9, 1e10}) {
    for (const ChunkPipeline pipeline :
         {ChunkPipeline::continuous, ChunkPipeline::pairwise, ChunkPipeline::none}) {
      ExpertLayer layer = layer_of(1024);
      layer.plan.pipeline = pipeline;
      const Cluster cluster = cluster_of(link);
      const ChunkChoice choice = choose_chunks(cluster, layer);
      for (const int chunks : kChunkCounts) {
        EXPECT_LE(choice.cost.seconds, 1.011 * layer_cost(cluster, layer, chunks).seconds);
      }
      if (pipeline == ChunkPipeline::none) {
        EXPECT_EQ(choice.chunks, 1);
      }
      EXPECT_NE(choice.reason.find("exposed"), std::string::npos);
    }
  }
}

TEST(ChunkChoice, ComputingGateAndUpAgainCostsTwoOfNineProducts) {
  ExpertLayer layer = layer_of(4096);
  Cluster cluster = cluster_of(1e15);
  cluster.links[0].latency_s = 1e-12;
  cluster.devices[0].memory_read_bytes_per_s = cluster.devices[0].memory_copy_bytes_per_s = 1e18;
  const double kept = layer_cost(cluster, layer, 1).seconds;
  layer.plan.recompute = MoeRecompute::activation;
  EXPECT_NEAR(layer_cost(cluster, layer, 1).seconds, kept, 1e-6 * kept);
  layer.plan.recompute = MoeRecompute::full;
  EXPECT_NEAR(layer_cost(cluster, layer, 1).seconds, kept * 11.0 / 9.0, 1e-3 * kept);
}

TEST(ChunkChoice, NeedsRatesOfItsProducts) {
  Cluster cluster = cluster_of(1e9);
  cluster.devices[0].matmul.clear();
  EXPECT_THROW((void)choose_chunks(cluster, layer_of(64)), Error);
  EXPECT_FALSE(products_of(layer_of(64)).empty());
}

}  // namespace
}  // namespace expedite::cost
