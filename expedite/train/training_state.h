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
#include "expedite/train/tokenizer_copy.h"

namespace expedite::train {

/// In a checkpoint: how far it was, and what a resumed run must have in common.
inline constexpr const char* kStateFile = "training_state.json";

/// Whether a run goes on from its newest checkpoint: not at all, or by all means, or if there is one.
enum class Resume : std::uint8_t { no, yes, automatic };

/// The checkpoint that a run would go on from; nothing when it starts anew. Throws Error when `resume` is
/// `yes` and there is none, when there are some and none verifies, and when the configuration would not
/// continue that run (other data, seed or batch).
[[nodiscard]] std::optional<Checkpoint> find_training_state(const TrainConfig& config, Resume resume,
                                                            Check check = Check::checksums);

/// Writes <run>/checkpoints/step-NNNNNN after `step` steps, the tokenizer's files (of rank 0) beside the
/// weights, and prunes old ones. Collective; the path is known to all.
std::filesystem::path save_training_state(const TrainConfig& config, model::Parameters& parameters,
                                          const comm::ProcessGrid& grid, std::int64_t step,
                                          const TokenizerCopy& tokenizer);

/// Whether a file of a checkpoint, by its name in there, is of the model rather than of its training.
[[nodiscard]] bool is_of_model(const std::string& file);

/// Reads the checkpoint that find_training_state finds, if there is one. Throws as it does. Collective.
[[nodiscard]] std::optional<Checkpoint> load_training_state(const TrainConfig& config, Resume resume,
                                                            model::Parameters& parameters,
                                                            const comm::ProcessGrid& grid);

}  // namespace expedite::train
