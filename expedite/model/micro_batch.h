// The input of one micro-batch on one rank: sequences packed one behind the other, without padding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace expedite::model {

struct MicroBatch {
  std::vector<std::int32_t> tokens;     // [T], zero tokens are legal
  std::vector<std::int32_t> targets;    // [T]; kernels::kIgnoredTarget: no loss
  std::vector<std::int64_t> bounds;     // sequence s is tokens [bounds[s], bounds[s + 1])
  std::vector<std::int32_t> positions;  // [T], each token's place in its sequence

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
  [[nodiscard]] std::int64_t sequences() const { return static_cast<std::int64_t>(bounds.size()) - 1; }

  MicroBatch() : bounds{0} {}
  /// Appends a sequence; `targets` has one entry per token.
  void append(std::span<const std::int32_t> sequence, std::span<const std::int32_t> sequence_targets) {
    tokens.insert(tokens.end(), sequence.begin(), sequence.end());
    targets.insert(targets.end(), sequence_targets.begin(), sequence_targets.end());
    for (std::size_t i = 0; i < sequence.size(); ++i) {
      positions.push_back(static_cast<std::int32_t>(i));
    }
    bounds.push_back(size());
  }
};

}  // namespace expedite::model
