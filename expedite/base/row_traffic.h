// How many bytes of token rows an exchange moves over each level of links.
#pragma once

#include <cstdint>

namespace expedite {

/// Bytes of rows from this rank to others (or read by it from their memory), without what goes beside rows.
struct RowTraffic {
  std::int64_t intra_node = 0;
  std::int64_t inter_node = 0;

  RowTraffic& operator+=(const RowTraffic& other) {
    intra_node += other.intra_node;
    inter_node += other.inter_node;
    return *this;
  }
  [[nodiscard]] bool operator==(const RowTraffic&) const = default;
};

}  // namespace expedite
