// What a builder of steps needs to know about the model, the ranks and the plan.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "expedite/schedule/ep_plan.h"
#include "expedite/schedule/role.h"
#include "expedite/schedule/schedule.h"

namespace expedite::schedule {

/// A step's groups, by index into Schedule::groups.
inline constexpr GroupId kWorldGroup = 0;
inline constexpr GroupId kExpertParallelGroup = 1;
inline constexpr GroupId kExpertDataParallelGroup = 2;
inline constexpr GroupId kNodeGroup = 3;  // the ranks of the ep group on this rank's node

struct StepSpec {
  int rank = 0;
  std::vector<Group> groups;                      // world, ep, expert_dp, ep_node
  Stream expert_parallel_stream = Stream::intra;  // inter when the job spans nodes
  EpPlan ep_plan;
  bool relays = false;  // the hierarchical dispatchers exchange rows inside a node, instead of reading them
  std::vector<bool> sparse;  // per layer: experts, or a dense MLP
  int micro_batches = 1;
  bool training = true;         // false: forward and loss only
  bool batch_aux_loss = false;  // expert loads of a micro-step are summed before its backward
  bool update = true;           // false: stop at reduced gradients

  bool shared_experts = false;  // sparse layers have experts that every token passes through

  // For expected bytes.
  std::int64_t tokens = 0;  // per micro-batch on this rank
  std::int64_t experts_per_token = 0;
  double expert_load = 1.0;  // rows of this rank's experts over the mean of its group's
  /// Of a buffer of `count` tokens, or rows where holds_rows(role). Empty: buffers are of unknown size, 0.
  std::function<std::int64_t(Role role, std::int64_t count)> bytes;

  [[nodiscard]] int layers() const { return static_cast<int>(sparse.size()); }
  [[nodiscard]] std::size_t group_size(GroupId group) const {
    return groups[static_cast<std::size_t>(group)].ranks.size();
  }
  [[nodiscard]] bool expert_parallel() const { return group_size(kExpertParallelGroup) > 1; }
  [[nodiscard]] bool hierarchical() const {
    return ep_plan.dispatcher == Dispatcher::hierarchical ||
           ep_plan.dispatcher == Dispatcher::hierarchical_dedup;
  }
  /// Rows lie in memory that the ranks of this node share.
  [[nodiscard]] bool shares_rows() const { return hierarchical() && !relays && group_size(kNodeGroup) > 1; }
  /// Rows are sent: to other nodes, or to any other rank where the dispatcher knows no nodes.
  [[nodiscard]] bool sends_rows() const {
    return expert_parallel() &&
           (!hierarchical() || relays || group_size(kNodeGroup) < group_size(kExpertParallelGroup));
  }
  /// Rows go between nodes first, then inside the node, and back the other way round.
  [[nodiscard]] bool sends_in_two_levels() const {
    return hierarchical() && relays && group_size(kNodeGroup) > 1 &&
           group_size(kNodeGroup) < group_size(kExpertParallelGroup);
  }
  /// Experts see all chunks of a layer in one buffer, so that weight gradients are one product over them.
  [[nodiscard]] bool whole_layer_buffers() const {
    return training && ep_plan.recompute == MoeRecompute::none;
  }
};

}  // namespace expedite::schedule
