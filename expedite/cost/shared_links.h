// Communication under way, and the share of each link's bandwidth that it gets.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "expedite/cost/exposure.h"

namespace expedite::cost {

/// Without contention every meeting takes its own time. With it, communications under way in one direction of
/// one link of one rank share it: while a communication would be on the wire, which is all its time but its
/// latency, it waits for each other one by the part of the time that the other is on the wire. Of n without
/// latency each progresses at 1/n of its pace (processor sharing). A meeting has the pace of its slowest
/// member. A link that has rested may let pass at once what comes first, as shapers and the buffers of
/// switches do: what gained TaskCost::rest_seconds by that leaves a link that has to rest for so long until
/// another gains as much. A send goes out, a receive comes in, a collective does both. What is on its way is
/// identified by a number that the caller chooses: a meeting's, or a member's where members end apart.
class SharedLinks {
 public:
  /// Called with what is on its way and when it will end, as long as nothing else begins or ends.
  using Schedule = std::function<void(std::int32_t which, double end)>;

  SharedLinks(std::size_t ranks, bool contention) : contention_(contention), users_(ranks), unrest_(ranks) {}

  /// Begins for `members`, tasks of the graph, which take `seconds` with their links alone.
  void begin(const TaskGraph& graph, const std::vector<TaskRun>& runs, std::int32_t which,
             std::span<const Node> members, double seconds, double now, const Schedule& schedule);
  /// Whether it ends at `time`: false when that was foreseen before its share changed.
  [[nodiscard]] bool ends(std::int32_t which, double time) const;
  void end(std::int32_t which, double now, const Schedule& schedule);
  /// Its pace, besides its share of links; 1 when it begins.
  void set_factor(std::int32_t which, double factor, double now, const Schedule& schedule);

 private:
  struct Use {
    std::size_t rank;
    std::size_t way;  // 2 link + (out: 0, in: 1)
  };
  struct Flow {
    std::vector<Use> uses = {};
    double left = 0.0;  // seconds with its links alone
    double pace = 1.0;
    double factor = 1.0;
    double wire = 1.0;   // the part of its seconds at factor 1 that it is on the wire
    double rest = 0.0;   // its rest_seconds
    double since = 0.0;  // when `left` was right
    double end = -1.0;
  };

  /// How much longer one way of a link has to rest, at a time.
  struct Unrest {
    double seconds = 0.0;
    double at = 0.0;

    [[nodiscard]] double left(double now) const { return std::max(seconds - (now - at), 0.0); }
  };

  std::vector<std::int32_t>& users(const Use& use) { return users_[use.rank][use.way]; }
  [[nodiscard]] Flow& flow(std::int32_t which);
  void share_anew(const std::vector<Use>& uses, double now, const Schedule& schedule);
  /// The part of the time that the others on a link are on the wire, all together.
  [[nodiscard]] double others(std::int32_t which, const Use& use);
  void set_pace(std::int32_t which, double now, const Schedule& schedule);

  bool contention_;
  std::vector<std::array<std::vector<std::int32_t>, 2 * kSharedLinks>> users_;  // by rank and way
  std::vector<std::array<Unrest, 2 * kSharedLinks>> unrest_;                    // likewise
  std::vector<Flow> flows_;                                                     // by number
};

}  // namespace expedite::cost
