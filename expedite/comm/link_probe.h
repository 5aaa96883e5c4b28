// Measures the links between ranks, inside nodes and between them, under the load of an all-to-all.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "expedite/comm/communicator.h"

namespace expedite::comm {

enum class LinkLevel : std::uint8_t { intra_node, inter_node };
/// "intra_node" or "inter_node".
[[nodiscard]] std::string_view name_of(LinkLevel level);

struct SizedBandwidth {
  std::int64_t message_bytes = 0;
  double bytes_per_s = 0.0;
};

/// One rank's, in one direction, while it sends and receives at once.
struct LinkRates {
  double latency_s = 0.0;                   // of a message of 8 bytes, one way
  double message_rate_per_s = 0.0;          // messages of 64 bytes, many under way
  double bandwidth_bytes_per_s = 0.0;       // the largest messages measured, all ranks at once
  double pair_bandwidth_bytes_per_s = 0.0;  // the same, two ranks alone
  std::vector<SizedBandwidth> by_size;      // all ranks at once, small messages first
};

struct LinkProbeOptions {
  /// About 0.1 s a level rather than 1 s, at the price of precision. Links below some 10 MB/s take longer.
  bool quick = false;
};

/// The rates of one level; nothing when no two ranks are so connected. Inside a node every rank sends to the
/// next and receives from the one before; between nodes the ranks of equal place in their nodes do so. All
/// rings work at the same time, so that links and cores that ranks share are shared here too. A round is
/// long enough to outrun the burst that a shaped link lets pass at first, and takes as long as its slowest
/// rank. node_of: [ranks] of the communicator, any numbers. Collective; the result is the same on all ranks.
[[nodiscard]] std::optional<LinkRates> probe_link(const Communicator& communicator,
                                                  std::span<const int> node_of, LinkLevel level,
                                                  const LinkProbeOptions& options = {});

}  // namespace expedite::comm
