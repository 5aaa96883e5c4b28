#include "bench/layer_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "expedite/base/error.h"
#include "expedite/base/median.h"

namespace expedite::bench {

std::size_t median_round(const LayerResult& result) {
  const auto round = std::ranges::find(result.seconds, median(result.seconds));
  return static_cast<std::size_t>(round - result.seconds.begin());
}

double floor_ratio(const LayerResult& result) {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < result.seconds.size(); ++round) {
    const double floor = std::max(result.matmul_floor_s[round], result.wire_floor_s);
    if (floor > 0.0) {
      ratios.push_back(result.seconds[round] / floor);
    }
  }
  return ratios.empty() ? 0.0 : median(ratios);  // without experts' work and without links there is no floor
}

double speedup(const LayerResult& result, const LayerResult& base) {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < result.seconds.size(); ++round) {
    ratios.push_back(base.seconds[round] / result.seconds[round]);
  }
  return median(ratios);
}

RowTraffic expected_bytes(const LayerResult& result) {
  const RowTraffic rows = rows_there_and_back(result.plan.dispatcher, result.routing);
  const std::int64_t bytes = result.exchanges / 2 * result.row_bytes;
  return {.intra_node = rows.intra_node * bytes, .inter_node = rows.inter_node * bytes};
}

std::string name_of(const schedule::EpPlan& plan) {
  std::string name = fmt::format("{}-chunks{}-{}", schedule::name_of(plan.dispatcher), plan.chunking.chunks,
                                 schedule::name_of(plan.pipeline));
  if (plan.pipeline == schedule::ChunkPipeline::continuous) {
    name += fmt::format("-window{}", plan.window);
  }
  if (plan.recompute != schedule::MoeRecompute::none) {
    name += fmt::format("-recompute-{}", schedule::name_of(plan.recompute));
  }
  return name;
}

std::string layer_table(std::span<const LayerResult> results) {
  std::string table = fmt::format(
      "{:<19} {:>3} {:<10} {:>3} {:<9} {:>9} {:>9} {:>7} {:>8} {:>8} {:>6} {:>7} {:>7} {:>9} {:>10} {:>10} "
      "{:>6}\n",
      "dispatcher", "N", "pipeline", "win", "recompute", "median ms", "min ms", "speed", "matmul", "wire",
      "floor", "exposed", "bound", "peak MiB", "intra MB", "inter MB", "routed");
  for (const LayerResult& result : results) {
    const RowTraffic sent = {.intra_node = result.bytes_intra_node, .inter_node = result.bytes_inter_node};
    table += fmt::format(
        "{:<19} {:>3} {:<10} {:>3} {:<9} {:>9.2f} {:>9.2f} {:>5.2f} x {:>8.2f} {:>8.2f} {:>4.2f} x {:>5.1f} "
        "% {:>5.1f} % {:>9.1f} {:>10.2f} {:>10.2f} {:>6}\n",
        schedule::name_of(result.plan.dispatcher), result.plan.chunking.chunks,
        schedule::name_of(result.plan.pipeline), result.plan.window, schedule::name_of(result.plan.recompute),
        median(result.seconds) * 1e3, *std::ranges::min_element(result.seconds) * 1e3,
        speedup(result, results.front()), median(result.matmul_floor_s) * 1e3, result.wire_floor_s * 1e3,
        floor_ratio(result), median(result.exposed_fraction) * 100.0, median(result.exposed_bound) * 100.0,
        static_cast<double>(result.peak_expert_activation_bytes) / (1 << 20),
        static_cast<double>(result.bytes_intra_node) / 1e6,
        static_cast<double>(result.bytes_inter_node) / 1e6, sent == expected_bytes(result) ? "yes" : "NO");
  }
  return table;
}

nlohmann::json layer_json(std::span<const LayerResult> results) {
  auto array = nlohmann::json::array();
  for (const LayerResult& result : results) {
    const RowTraffic expected = expected_bytes(result);
    array.push_back({{"chunks", result.plan.chunking.chunks},
                     {"pipeline", schedule::name_of(result.plan.pipeline)},
                     {"window", result.plan.window},
                     {"dispatcher", schedule::name_of(result.plan.dispatcher)},
                     {"recompute", result.plan.recompute != schedule::MoeRecompute::none},
                     {"recompute_level", schedule::name_of(result.plan.recompute)},
                     {"median_ms", median(result.seconds) * 1e3},
                     {"min_ms", *std::ranges::min_element(result.seconds) * 1e3},
                     {"speedup", speedup(result, results.front())},
                     {"matmul_floor_ms", median(result.matmul_floor_s) * 1e3},
                     {"wire_floor_ms", result.wire_floor_s * 1e3},
                     {"floor_ratio", floor_ratio(result)},
                     {"exposed_fraction", median(result.exposed_fraction)},
                     {"exposed_bound_fraction", median(result.exposed_bound)},
                     {"peak_expert_activation_bytes", result.peak_expert_activation_bytes},
                     {"metadata_exchanges", result.metadata_exchanges},
                     {"bytes_intra_node", result.bytes_intra_node},
                     {"bytes_inter_node", result.bytes_inter_node},
                     {"expected_bytes_intra_node", expected.intra_node},
                     {"expected_bytes_inter_node", expected.inter_node},
                     {"row_bytes", result.row_bytes},
                     {"exchanges", result.exchanges},
                     {"copies_to_other_ranks", result.routing.copies_to_other_ranks},
                     {"copies_to_other_nodes", result.routing.copies_to_other_nodes},
                     {"distinct_token_rank_pairs", result.routing.token_rank_pairs},
                     {"distinct_token_node_pairs", result.routing.token_node_pairs}});
  }
  return array;
}

}  // namespace expedite::bench
