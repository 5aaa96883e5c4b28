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

struct MeasuredRun {
  double step_seconds = 0.0;  // median
  double exposed = 0.0;       // part of the step on rank 0; median
  ClassSeconds classes;       // medians of the traced steps
  std::int64_t steps = 0;     // that step_seconds is of
};

/// The run folder's expert loads alone: what the schedules to read the rest by depend on.
[[nodiscard]] std::vector<std::vector<double>> measured_loads(const std::filesystem::path& run_dir);

/// Of the traced steps, which are past warm-up.
[[nodiscard]] MeasuredRun read_run(const std::filesystem::path& run_dir,
                                   std::span<const schedule::Schedule> schedules);

}  // namespace expedite::train
