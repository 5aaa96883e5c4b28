// Weights between a rank's parameters and a Hugging Face folder: every rank reads its own experts, and one
// rank writes the whole model, experts gathered from the ranks that hold them.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "expedite/comm/process_grid.h"
#include "expedite/hf/safetensors_folder.h"
#include "expedite/hf/safetensors_writer.h"
#include "expedite/model/parameters.h"

namespace expedite::model {

/// Throws Error naming a tensor that is missing from a Hugging Face folder, has another shape, or is not part
/// of the model. Reads headers alone: State::shapes is enough.
void check_weights(Parameters& parameters, const hf::SafetensorsFolder& folder);

/// Fills the weights (and masters) from a Hugging Face folder. Throws Error as check_weights. Not collective.
void load_weights(Parameters& parameters, const hf::SafetensorsFolder& folder);

/// Which of the tensors that are kept per weight.
enum class StateTensor : std::uint8_t { weight, master, gradient, exp_avg, exp_avg_sq };

/// The bytes of one tensor in `dtype`, on rank 0 (elsewhere empty), from whichever rank holds it. Collective.
[[nodiscard]] std::vector<std::byte> gather_tensor(const CheckpointTensor& tensor, StateTensor which,
                                                   DType dtype, const comm::ProcessGrid& grid);

/// Fills masters or optimizer moments from a folder written by save_tensors; masters are rounded into the
/// weights.
void load_tensors(Parameters& parameters, StateTensor which, const hf::SafetensorsFolder& folder);

/// Tells of a file that was written and synced: its path and what was written.
using FileWritten = std::function<void(const std::filesystem::path& file, const hf::WrittenFile& written)>;

/// Writes the whole model's tensors into `folder` as safetensors, in shards with an index above
/// `max_shard_bytes`; weights in the model's type, everything else in f32. Collective over the grid's world:
/// rank 0 writes, and throws when it cannot; `written` is called on rank 0.
void save_tensors(Parameters& parameters, StateTensor which, const comm::ProcessGrid& grid,
                  const std::filesystem::path& folder, const FileWritten& written,
                  std::int64_t max_shard_bytes = hf::kMaxShardBytes);

}  // namespace expedite::model
