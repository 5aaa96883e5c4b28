// Commands that run a training configuration as a job: what they share of options, checks and start.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "expedite/cli/commands.h"
#include "expedite/cli/job.h"
#include "expedite/comm/process_grid.h"
#include "expedite/train/config.h"

namespace expedite::cli {

struct TrainingJobOptions {
  JobOptions job;
  std::vector<std::string> overrides;
  bool checked = false;  // by the process that has started this one as a rank
  int live_width = 0;    // of that process's terminal; 0: it has none
};

/// --ranks, --lab, --set, and what the launcher tells its ranks.
void add_training_job_options(CLI::App& command, TrainingJobOptions& options);

/// What a command makes of it.
struct TrainingJob {
  std::function<train::TrainConfig()> read;
  /// Throws Error when the job cannot begin. `ranks`: those of this machine.
  std::function<void(const train::TrainConfig& config, const comm::Placement& placement,
                     std::span<const int> ranks)>
      check;
  std::function<int(const train::TrainConfig& config, const comm::ProcessGrid& grid)> run;
};

/// Reads, checks and runs: before any rank starts where this process starts them, so that a mistake is told
/// once and in one line; else in each rank. Returns the exit status.
[[nodiscard]] int run_training_job(const TrainingJobOptions& options, const Context& context,
                                   const TrainingJob& job);

}  // namespace expedite::cli
