// What can be known to be wrong with a run before its ranks start, so that it is told once and in one line.
#pragma once

#include <optional>
#include <span>

#include "expedite/comm/grid_layout.h"
#include "expedite/model/parameters.h"
#include "expedite/train/config.h"
#include "expedite/train/training_state.h"

namespace expedite::train {

/// Throws Error unless tokenizer, model and its weights, text, sequence length and memory are such that the
/// run can begin. `ranks`: those that run on this machine, whose memory counts. `state`: training, or weights
/// for evaluation alone. Reads headers, and text until there is some.
void check_config(const TrainConfig& config, const comm::Placement& placement, std::span<const int> ranks,
                  model::State state);

/// Throws Error when another run of the name is under way, or the folder does not hold what `resume` asks
/// for. Looks at the sizes of checkpoints, not at all their bytes.
void check_run_folder(const TrainConfig& config, Resume resume);

}  // namespace expedite::train
