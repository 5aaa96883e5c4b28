// A model that is there already: found by the path of a run, of a checkpoint, of a configuration or of a
// Hugging Face folder, to be measured or handed on.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "expedite/train/checkpoint.h"
#include "expedite/train/config.h"

namespace expedite::train {

/// The checkpoint that `path` is, or the newest that verifies of the run whose folder it is. Throws Error
/// when it is neither, or when what is there does not verify.
[[nodiscard]] Checkpoint find_checkpoint(const std::filesystem::path& path, Check check = Check::checksums);

/// A configuration that loads the model: for a run's folder, or a checkpoint inside one, the run's own with
/// the checkpoint's weights; for a configuration, itself where it loads weights, else with those of its run's
/// newest checkpoint; for another folder the defaults, and its weights. Then the overrides. Throws Error as
/// read_config and find_checkpoint do.
[[nodiscard]] TrainConfig config_of_model(const std::filesystem::path& path,
                                          std::span<const std::string> overrides,
                                          Check check = Check::checksums);

/// Writes what Hugging Face's libraries read of a checkpoint (config.json, weights, tokenizer) into the
/// folder `out`, which must be empty or not there: it appears whole or not at all. Throws Error.
void export_model(const Checkpoint& checkpoint, const std::filesystem::path& out);

}  // namespace expedite::train
