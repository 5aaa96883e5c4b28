// What a run's files tell of how long its steps and their tasks took.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "expedite/cost/simulator.h"
#include "expedite/schedule/schedule.h"
#include "expedite/tracing/trace_json.h"

namespace expedite::train {

/// Tasks that do the same.
using TaskClass = std::pair<schedule::Op, schedule::Pass>;

/// Seconds of one step by class: running, or of communication under way, from when the last member of its
/// group has reached it; the mean of the ranks.
using ClassSeconds = std::map<TaskClass, double>;

/// Of each step in the traces that has all tasks of `schedules`, which must be by rank. Throws Error when
/// there is none: the traces are of another configuration.
[[nodiscard]] std::vector<ClassSeconds> class_seconds(std::span<const tracing::RankTrace> traces,
                                                      std::span<const schedule::Schedule> schedules);

/// How long the steps of a run took, or are predicted to take: medians of the steps.
struct StepTimes {
  double step_seconds = 0.0;
  double exposed = 0.0;  // part of the step in which compute waits for communication, or for other ranks
  ClassSeconds classes;
  std::int64_t steps = 0;
};

/// How often tokens chose each expert, [sparse layers][E], in each step of the run folder that was traced.
/// Routing differs from step to step, and the busiest rank sets the pace of each. Empty: not recorded.
using ExpertLoads = std::vector<std::vector<double>>;
[[nodiscard]] std::vector<ExpertLoads> measured_loads(const std::filesystem::path& run_dir);

/// Of the traced steps, which are past warm-up; `exposed` is rank 0's.
[[nodiscard]] StepTimes read_run(const std::filesystem::path& run_dir,
                                 std::span<const schedule::Schedule> schedules);

/// The median of each class.
[[nodiscard]] ClassSeconds median_classes(std::span<const ClassSeconds> steps);

}  // namespace expedite::train
