// Compute under way, and the part of its cores that it gets: ranks may share cores with each other, and each
// shares its own with its communication.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "expedite/cost/cluster.h"
#include "expedite/cost/task_graph.h"

namespace expedite::cost {

/// A task of compute progresses at the pace that its cost is given for, on a core of its own, times
/// - CoreSharing's parts: n ranks on c cores share them while more than c compute;
/// - TaskCost::compute_share of each link that its communication is under way on.
/// Communication progresses between the paces of TaskCost::seconds and busy_seconds, by the part of its
/// members that compute.
class SharedCores {
 public:
  /// Called with a task and when it will end, as long as nothing else begins or ends.
  using Schedule = std::function<void(Node node, double end)>;

  /// node_of: of every simulated rank.
  SharedCores(std::vector<int> node_of, const CoreSharing& sharing);

  void begin(const TaskGraph& graph, Node node, double seconds, double now);
  /// Whether the task ends at `time`: false when that was foreseen before its share changed.
  [[nodiscard]] bool ends(const TaskGraph& graph, Node node, double time) const;
  void end(const TaskGraph& graph, Node node);
  [[nodiscard]] bool computes(std::size_t rank) const { return running_[rank].has_value(); }

  /// A communication of the rank begins, or ends.
  void communicate(std::size_t rank, int link, double compute_share, int sign);
  /// To be called when all that begins or ends at one time has been told.
  void share_anew(double now, const Schedule& schedule);

 private:
  struct Running {
    Node node = -1;
    double left = 0.0;  // seconds at pace 1
    double pace = 0.0;
    double since = 0.0;  // when `left` was right
    double end = -1.0;
  };
  struct Use {
    int link;
    double share;
  };

  [[nodiscard]] double pace_of(std::size_t rank) const;

  std::vector<int> node_of_;
  CoreSharing sharing_;
  std::vector<double> ranks_of_node_;
  std::vector<double> computing_;  // by node: its ranks that do
  std::vector<std::optional<Running>> running_;
  std::vector<std::vector<Use>> uses_;  // by rank
};

}  // namespace expedite::cost
