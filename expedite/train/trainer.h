// The training loop: steps, evaluation, metrics, trace and checkpoints of one run.
#pragma once

#include <filesystem>
#include <optional>

#include "expedite/comm/process_grid.h"
#include "expedite/train/config.h"
#include "expedite/train/training_state.h"

namespace expedite::train {

struct TrainOptions {
  Resume resume = Resume::no;
  std::optional<int>
      live_width;  // columns of the terminal to redraw the progress line on; nothing: plain lines
};

struct TrainSummary {
  std::int64_t steps = 0;                          // done, of all invocations of the run
  bool stopped = false;                            // by a signal or the time limit, before the last step
  double loss = 0.0;                               // of the last step
  std::optional<double> validation_bits_per_byte;  // nothing without validation text
  std::optional<double> markov2_bits_per_byte;     // yardsticks on the same text
  std::optional<double> gzip9_bits_per_byte;
  double seconds = 0.0;
  std::filesystem::path checkpoint;
};

/// Trains. Collective over the grid's world. Writes <output_dir>/<name>/: config.yaml, metrics.jsonl,
/// trace.json and checkpoints/. A run of the same name that is not resumed is moved aside, never overwritten;
/// the caller holds the RunLock of the folder on rank 0.
/// Errors after the ranks have begun to communicate end the job on all of them with a message that names the
/// rank.
TrainSummary train(const TrainConfig& config, const comm::ProcessGrid& grid, const TrainOptions& options);

}  // namespace expedite::train
