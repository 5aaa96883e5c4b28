// What a rank's time went into, from when its tasks ran and what each waited for last.
#pragma once

#include <vector>

#include "expedite/cost/task_graph.h"

namespace expedite::cost {

/// One task in a simulation.
struct TaskRun {
  TaskCost cost = {};
  double reached = -1.0;  // when its turn had come
  double begin = -1.0;    // of communication: when all members had reached it
  double end = -1.0;      // -1: it has not ended
  Node cause = -1;        // the last task that it waited for on its own rank; -1: none
};

/// Fills in the times of `simulation.ranks`, whose `seconds` is known, and with `events` their events. An
/// idle stretch of the compute stream is followed back through what the next task waited for: as long as that
/// is communication under way, the time is its; before it, the time is the bubble.
void account(const TaskGraph& graph, const std::vector<TaskRun>& runs, bool events, Simulation& simulation);

}  // namespace expedite::cost
