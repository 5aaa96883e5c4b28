#include "bench/layer_report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "bench/layer.h"
#include "expedite/base/error.h"

namespace expedite::bench {
namespace {

using schedule::ChunkPipeline;
using schedule::Dispatcher;

LayerResult result_of(std::vector<double> seconds) {
  LayerResult result;
  result.plan = {.dispatcher = Dispatcher::zero_redundancy,
                 .chunking = {.chunks = 4},
                 .pipeline = ChunkPipeline::pairwise,
                 .window = 3,
                 .recompute = schedule::MoeRecompute::full};
  result.seconds = std::move(seconds);
  result.matmul_floor_s.assign(result.seconds.size(), 0.1);
  result.exposed_fraction.assign(result.seconds.size(), 0.25);
  result.exposed_bound.assign(result.seconds.size(), 0.125);
  return result;
}

TEST(LayerReport, NamesAContender) {
  LayerResult result = result_of({0.2, 0.1, 0.3});
  EXPECT_EQ(median_round(result), 0U);
  EXPECT_EQ(name_of(result.plan), "zero_redundancy-chunks4-pairwise-recompute-full");
  result.plan.pipeline = ChunkPipeline::continuous;
  result.plan.recompute = schedule::MoeRecompute::none;
  EXPECT_EQ(name_of(result.plan), "zero_redundancy-chunks4-continuous-window3");
}

TEST(LayerReport, RatiosAreTakenWithinARound) {
  // The machine is three times slower in the last round, for both.
  const LayerResult base = result_of({0.2, 0.2, 0.6});
  const LayerResult fast = result_of({0.1, 0.1, 0.3});
  EXPECT_DOUBLE_EQ(speedup(fast, base), 2.0);
  EXPECT_DOUBLE_EQ(speedup(base, base), 1.0);
}

TEST(LayerReport, TheFloorIsTheLargerOfTwo) {
  LayerResult result = result_of({0.2, 0.3, 0.3});
  EXPECT_DOUBLE_EQ(floor_ratio(result), 3.0);
  result.wire_floor_s = 0.3;
  EXPECT_DOUBLE_EQ(floor_ratio(result), 1.0);
  result.wire_floor_s = 0.0;
  result.matmul_floor_s.assign(3, 0.0);
  EXPECT_EQ(floor_ratio(result), 0.0);
}

TEST(LayerReport, JsonHasEveryKey) {
  LayerResult result = result_of({0.2, 0.3, 0.25});
  result.wire_floor_s = 0.05;
  result.peak_expert_activation_bytes = 11;
  result.metadata_exchanges = 1;
  result.bytes_intra_node = 12;
  result.bytes_inter_node = 13;
  result.routing = {.copies_to_other_ranks = 9,
                    .copies_to_other_nodes = 6,
                    .token_rank_pairs = 7,
                    .token_remote_rank_pairs = 5,
                    .token_node_pairs = 4};
  result.row_bytes = 100;
  result.exchanges = 4;
  const auto json = layer_json(std::vector{result});
  const nlohmann::json expected = {{"chunks", 4},
                                   {"pipeline", "pairwise"},
                                   {"window", 3},
                                   {"dispatcher", "zero_redundancy"},
                                   {"recompute", true},
                                   {"recompute_level", "full"},
                                   {"median_ms", 250.0},
                                   {"min_ms", 200.0},
                                   {"speedup", 1.0},
                                   {"matmul_floor_ms", 100.0},
                                   {"wire_floor_ms", 50.0},
                                   {"floor_ratio", 2.5},
                                   {"exposed_fraction", 0.25},
                                   {"exposed_bound_fraction", 0.125},
                                   {"peak_expert_activation_bytes", 11},
                                   {"metadata_exchanges", 1},
                                   {"bytes_intra_node", 12},
                                   {"bytes_inter_node", 13},
                                   {"expected_bytes_intra_node", 800},
                                   {"expected_bytes_inter_node", 2000},
                                   {"row_bytes", 100},
                                   {"exchanges", 4},
                                   {"copies_to_other_ranks", 9},
                                   {"copies_to_other_nodes", 6},
                                   {"distinct_token_rank_pairs", 7},
                                   {"distinct_token_node_pairs", 4}};
  EXPECT_EQ(json, nlohmann::json::array({expected}));
}

TEST(LayerReport, TheTableHasALineForEach) {
  const std::string table = layer_table(std::vector{result_of({0.2}), result_of({0.1})});
  EXPECT_EQ(std::ranges::count(table, '\n'), 3);
  EXPECT_NE(table.find(" 2.00 x"), std::string::npos) << table;
}

TEST(LayerReport, TheTableSaysWhetherBytesAreTheRoutings) {
  LayerResult right = result_of({0.2});
  right.routing = {.token_rank_pairs = 3, .token_remote_rank_pairs = 2};
  right.row_bytes = 8;
  right.bytes_intra_node = 16;
  right.bytes_inter_node = 32;
  EXPECT_NE(layer_table(std::vector{right}).find(" yes\n"), std::string::npos);
  LayerResult one_row_more = right;
  one_row_more.bytes_inter_node += 8;
  EXPECT_NE(layer_table(std::vector{right, one_row_more}).find(" NO\n"), std::string::npos);
}

TEST(LayerContenders, AreEveryCombinationOnce) {
  LayerBenchOptions options;
  options.chunks = {1, 4};
  options.pipelines = {ChunkPipeline::continuous, ChunkPipeline::pairwise};
  options.windows = {2, 3};
  options.dispatchers = {Dispatcher::alltoall, Dispatcher::hierarchical, Dispatcher::alltoall};
  options.recompute = {schedule::MoeRecompute::none, schedule::MoeRecompute::full};
  const auto plans = contenders(options);
  // Two windows of the continuous pipeline and the pairwise one, which has none.
  EXPECT_EQ(plans.size(), 2U * 2U * 3U * 2U);
  for (const auto& plan : plans) {
    EXPECT_EQ(std::ranges::count(plans, plan), 1);
  }
}

}  // namespace
}  // namespace expedite::bench
