// All tasks of simulated ranks as one graph: who waits for whom, and who meets whom.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "expedite/cost/simulator.h"

namespace expedite::cost {

using Node = std::int32_t;  // a task of a rank; ranks one after the other

class TaskGraph {
 public:
  /// Throws Error as simulate() says.
  explicit TaskGraph(std::span<const RankClass> ranks);

  [[nodiscard]] Node nodes() const { return static_cast<Node>(rank_of_.size()); }
  [[nodiscard]] std::size_t rank_of(Node node) const { return rank_of_[at(node)]; }  // index into `ranks`
  [[nodiscard]] const schedule::Schedule& schedule_of(Node node) const {
    return *ranks_[rank_of(node)].schedule;
  }
  [[nodiscard]] const schedule::Task& task(Node node) const { return *task_[at(node)]; }
  /// How many tasks it waits for.
  [[nodiscard]] std::int32_t waits_for(Node node) const { return waits_for_[at(node)]; }
  [[nodiscard]] std::span<const Node> followers(Node node) const {
    return {followers_.data() + first_follower_[at(node)], followers_.data() + first_follower_[at(node) + 1]};
  }
  /// Tasks that begin and end together, this one among them; empty when it has no communication.
  [[nodiscard]] std::span<const Node> meeting(Node node) const {
    return meeting_of_[at(node)] < 0 ? std::span<const Node>() : meetings_[at(meeting_of_[at(node)])];
  }
  [[nodiscard]] std::int32_t meeting_of(Node node) const { return meeting_of_[at(node)]; }
  [[nodiscard]] std::span<const std::vector<Node>> meetings() const { return meetings_; }

 private:
  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  void add_edges();
  void match();

  std::span<const RankClass> ranks_;
  std::vector<Node> first_;  // of each rank
  std::vector<std::uint32_t> rank_of_;
  std::vector<const schedule::Task*> task_;
  std::vector<std::int32_t> waits_for_;
  std::vector<std::int32_t> first_follower_;
  std::vector<Node> followers_;
  std::vector<std::int32_t> meeting_of_;
  std::vector<std::vector<Node>> meetings_;
};

}  // namespace expedite::cost
