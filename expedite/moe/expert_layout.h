// Who holds which experts and which ranks share memory, in one expert-parallel group, as a dispatcher sees
// it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "expedite/schedule/dispatcher.h"

namespace expedite::moe {

/// Ranks are those of the group. A dispatcher that knows no nodes sees each rank as a node of its own.
class ExpertLayout {
 public:
  /// No ranks.
  ExpertLayout() = default;
  /// first_expert: R + 1 entries, rank r holds experts [first_expert[r], first_expert[r + 1]). node: [R],
  /// numbers from 0 without gaps.
  ExpertLayout(std::span<const std::int64_t> first_expert, std::span<const int> node, int rank,
               schedule::Dispatcher dispatcher);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return static_cast<int>(node_.size()); }
  [[nodiscard]] int nodes() const { return static_cast<int>(ranks_of_node_.size()); }
  [[nodiscard]] std::int64_t experts() const { return static_cast<std::int64_t>(owner_.size()); }
  [[nodiscard]] std::int64_t local_experts() const { return local_experts_; }
  [[nodiscard]] std::int64_t first_local_expert() const { return first_local_expert_; }
  /// The rank that holds an expert.
  [[nodiscard]] int owner(std::int64_t expert) const { return owner_[static_cast<std::size_t>(expert)]; }
  [[nodiscard]] int node(int rank) const { return node_[static_cast<std::size_t>(rank)]; }
  /// A rank's place among the ranks of its node.
  [[nodiscard]] int local_index(int rank) const { return local_index_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::span<const int> ranks_of_node(int node) const {
    return ranks_of_node_[static_cast<std::size_t>(node)];
  }
  [[nodiscard]] std::span<const int> neighbours() const { return ranks_of_node(node(rank_)); }
  /// The rank of `node` that rank `source` sends its rows for that node to: the one with its own local index,
  /// or where nodes differ in size, that index modulo the node's; `source` itself on its own node.
  [[nodiscard]] int relay(int source, int node) const;
  /// Rows for a node: one for each expert copy (the flat all-to-all), else one for each token.
  [[nodiscard]] bool row_per_copy() const { return row_per_copy_; }
  /// Tokens go to every other node, wanted there or not.
  [[nodiscard]] bool every_node() const { return every_node_; }

 private:
  int rank_ = 0;
  std::vector<std::int32_t> owner_;  // [E]
  std::int64_t first_local_expert_ = 0;
  std::int64_t local_experts_ = 0;
  std::vector<int> node_;                        // [R]
  std::vector<int> local_index_;                 // [R]
  std::vector<std::vector<int>> ranks_of_node_;  // ascending
  bool row_per_copy_ = false;
  bool every_node_ = false;
};

}  // namespace expedite::moe
