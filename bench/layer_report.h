// What `expedite bench layer` and `expedite bench dispatch` found out about each contender: table and JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "bench/routing_count.h"
#include "expedite/base/row_traffic.h"
#include "expedite/schedule/ep_plan.h"

namespace expedite::bench {

/// Times by round, in which every contender and the floors have had a turn; seconds of the slowest rank.
struct LayerResult {
  schedule::EpPlan plan;
  std::vector<double> seconds;
  std::vector<double> matmul_floor_s;    // the same for all contenders
  double wire_floor_s = 0.0;             // this contender's bytes over the link at its measured bandwidth
  std::vector<double> exposed_fraction;  // of the slowest rank's time, by its trace
  std::vector<double> exposed_bound;     // the same as exposed_bound_s has it
  std::int64_t peak_expert_activation_bytes = 0;  // of the rank with the most
  std::int64_t metadata_exchanges = 0;            // of each rank
  std::int64_t bytes_intra_node = 0;              // of all ranks, token rows alone
  std::int64_t bytes_inter_node = 0;
  RoutingCount routing;        // the same for all contenders
  std::int64_t row_bytes = 0;  // likewise
  int exchanges = 2;           // of all chunks' rows: there and back, and in training the same for gradients
};

/// The bytes of token rows that follow from the routing.
[[nodiscard]] RowTraffic expected_bytes(const LayerResult& result);

/// The round whose time is the median.
[[nodiscard]] std::size_t median_round(const LayerResult& result);
/// Median over rounds of the time over the larger floor of that round.
[[nodiscard]] double floor_ratio(const LayerResult& result);
/// Median over rounds of how many times as fast `result` was as `base` in the same round.
[[nodiscard]] double speedup(const LayerResult& result, const LayerResult& base);

/// "alltoall-chunks4-continuous-window2", with "-recompute-full" or "-recompute-activation" where it is.
[[nodiscard]] std::string name_of(const schedule::EpPlan& plan);

/// A line per contender, with its speed relative to the first.
[[nodiscard]] std::string layer_table(std::span<const LayerResult> results);
/// An array with an object per contender.
[[nodiscard]] nlohmann::json layer_json(std::span<const LayerResult> results);

}  // namespace expedite::bench
