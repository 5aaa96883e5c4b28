// Who is in which group, and which experts a rank holds: arithmetic alone, without MPI.
#pragma once

#include <cstdint>
#include <vector>

namespace expedite::comm {

/// Consecutive experts [begin, begin + count).
struct ExpertRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  [[nodiscard]] std::int64_t end() const { return begin + count; }
  [[nodiscard]] bool contains(std::int64_t expert) const { return expert >= begin && expert < end(); }
  [[nodiscard]] bool operator==(const ExpertRange&) const = default;
};

/// The experts of one rank of an expert-parallel group: contiguous blocks, the first ranks one expert more
/// when `experts` is not a multiple of `ep_size`. More ranks than experts is legal: the last ranks hold none.
[[nodiscard]] ExpertRange expert_range(std::int64_t experts, int ep_size, int ep_rank);
/// The rank of the group whose expert_range holds `expert`.
[[nodiscard]] int expert_owner(std::int64_t experts, int ep_size, std::int64_t expert);

/// The ranks of a job, cut into expert-parallel groups of consecutive ranks. Ranks with the same place in
/// their group hold the same experts; together they are an expert-data-parallel group.
class GridLayout {
 public:
  /// An Error, naming the legal sizes, unless `expert_parallel_size` divides `world_size`.
  GridLayout(int world_size, int expert_parallel_size);

  [[nodiscard]] int world_size() const { return world_size_; }
  [[nodiscard]] int expert_parallel_size() const { return expert_parallel_size_; }
  /// How many ranks hold the same experts.
  [[nodiscard]] int replicas() const { return world_size_ / expert_parallel_size_; }
  /// A rank's place in its expert-parallel group.
  [[nodiscard]] int expert_parallel_rank(int rank) const { return rank % expert_parallel_size_; }
  /// A rank's place in its expert-data-parallel group.
  [[nodiscard]] int replica(int rank) const { return rank / expert_parallel_size_; }
  /// World ranks, ascending.
  [[nodiscard]] std::vector<int> expert_parallel_ranks(int rank) const;
  [[nodiscard]] std::vector<int> expert_data_parallel_ranks(int rank) const;
  [[nodiscard]] std::vector<int> world_ranks() const;

 private:
  int world_size_;
  int expert_parallel_size_;
};

/// A layout, and the node that each rank is on.
struct Placement {
  GridLayout layout;
  std::vector<int> node_of;  // numbered from 0 without gaps

  [[nodiscard]] int node(int rank) const { return node_of[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int nodes() const;
};

/// `ranks_per_node` consecutive ranks on every node, as launchers number them.
[[nodiscard]] Placement even_placement(const GridLayout& layout, int ranks_per_node);

}  // namespace expedite::comm
