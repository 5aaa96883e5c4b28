// The communicators of a training job: world, expert-parallel and expert-data-parallel, aware of nodes.
#pragma once

#include <span>
#include <vector>

#include "expedite/comm/communicator.h"
#include "expedite/comm/grid_layout.h"

namespace expedite::comm {

class ProcessGrid {
 public:
  /// Collective over `world`. `node_of`: the node of each rank where ranks of one machine are to count as
  /// those of several nodes, the same on all ranks; empty: ranks that share memory are a node. Throws as
  /// GridLayout does.
  ProcessGrid(const Communicator& world, int expert_parallel_size, std::span<const int> node_of = {});

  [[nodiscard]] const GridLayout& layout() const { return layout_; }
  [[nodiscard]] Placement placement() const { return {layout_, node_of_}; }
  [[nodiscard]] int rank() const { return world_.rank(); }
  [[nodiscard]] int size() const { return world_.size(); }

  /// For set-up and dense gradients, named "world".
  [[nodiscard]] const Communicator& world() const { return world_; }
  /// For dispatch and combine, named "ep".
  [[nodiscard]] const Communicator& expert_parallel() const { return expert_parallel_; }
  /// For expert gradients, named "expert_dp".
  [[nodiscard]] const Communicator& expert_data_parallel() const { return expert_data_parallel_; }

  /// Nodes are numbered by their lowest rank's order.
  [[nodiscard]] int nodes() const { return nodes_; }
  [[nodiscard]] int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int node() const { return node_of(rank()); }
  /// This rank's place among the ranks of its node, and how many they are.
  [[nodiscard]] int local_rank() const { return local_rank_; }
  [[nodiscard]] int local_size() const { return local_size_; }
  [[nodiscard]] bool inside_one_node(std::span<const int> ranks) const;

 private:
  GridLayout layout_;
  Communicator world_;
  Communicator expert_parallel_;
  Communicator expert_data_parallel_;
  std::vector<int> node_of_;
  int nodes_ = 0;
  int local_rank_ = 0;
  int local_size_ = 0;
};

}  // namespace expedite::comm
