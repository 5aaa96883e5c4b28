// What a training run must remember to go on bit for bit: weights, masters, optimizer moments and how far it
// was. Saved so that any layout of ranks can read it: a checkpoint is a Hugging Face folder with the
// optimizer's state beside it.
#pragma once

#include <filesystem>
#include <optional>

#include "expedite/comm/process_grid.h"
#include "expedite/model/parameters.h"
#include "expedite/train/checkpoint.h"
#include "expedite/train/config.h"

namespace expedite::train {

/// Writes <run>/checkpoints/step-NNNNNN after `step` steps and prunes old ones. Collective; the path is known
/// to all.
std::filesystem::path save_training_state(const TrainConfig& config, model::Parameters& parameters,
                                          const comm::ProcessGrid& grid, std::int64_t step);

/// Reads the newest valid checkpoint of the run, if there is one, and returns how many steps it had done.
/// Throws Error when the configuration would not continue that run (other data, seed or batch). Collective.
[[nodiscard]] std::optional<std::int64_t> load_training_state(const TrainConfig& config,
                                                              model::Parameters& parameters,
                                                              const comm::ProcessGrid& grid);

}  // namespace expedite::train
