// Completes the plan of one chunk from the routing of all ranks. Private to the room.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "expedite/moe/dispatch_plan.h"

namespace expedite::moe {

/// Every rank walks the same tokens in the same order, so that what one writes is what another reads: by
/// source rank, then token, then choice.
class ChunkPlanner {
 public:
  /// bounds: [R] each rank's chunk bounds.
  ChunkPlanner(const ExpertLayout& layout, std::span<const Choices> routing,
               std::span<const std::vector<std::int64_t>> bounds, std::size_t chunk, std::int64_t top_k);

  void complete(ChunkPlan& plan);

 private:
  /// A token of a source rank, and what this node's ranks have to do with it.
  struct Token {
    int source = 0;
    std::int64_t number = 0;  // in the source's micro-batch
    std::int64_t index = 0;   // in the chunk
    std::span<const Choice> choices;
    int relay = 0;         // local index of the rank of this node that has its rows
    bool foreign = false;  // its rows arrived from another node
    std::span<const int>
        wanted;  // local indices of the neighbours that it is for, in the order of its choices
  };
  template <typename Visit>
  void for_each_token(const Visit& visit);

  /// Rows that the token takes at its relay: 0, 1, or with a row per copy as many as its choices there.
  [[nodiscard]] std::int64_t rows_at_relay(const Token& token) const;
  void count(ChunkPlan& plan);
  void assign_token(const Token& token, ChunkPlan& plan);
  /// Which of the sums of neighbour `n` is that of the next row at `relay` that it wants.
  [[nodiscard]] std::int64_t& next_share(int relay, int n) {
    return shares_[static_cast<std::size_t>(relay) * neighbours_ + static_cast<std::size_t>(n)];
  }
  /// Row in expert order of the source's next choice of a local expert.
  [[nodiscard]] std::int64_t& next_block_row(std::int64_t local_expert, int source) {
    return block_rows_[static_cast<std::size_t>(local_expert) * static_cast<std::size_t>(layout_.ranks()) +
                       static_cast<std::size_t>(source)];
  }

  const ExpertLayout& layout_;
  std::span<const Choices> routing_;
  std::span<const std::vector<std::int64_t>> bounds_;
  std::size_t chunk_;
  std::int64_t top_k_;
  std::size_t neighbours_;
  int self_;  // this rank's local index
  // Counted, then turned into the next row to be taken.
  std::vector<std::int64_t> rows_;    // [R] of each source, at its relay in this node
  std::vector<std::int64_t> shares_;  // [neighbours * neighbours] of each relay's rows, for each neighbour
  std::vector<std::int64_t> block_rows_;  // [local experts * R]
  std::vector<bool> summed_;              // [neighbours] the current token's
};

}  // namespace expedite::moe
