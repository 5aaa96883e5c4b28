// Holds a model as it is read here against numbers from elsewhere, tensor by tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "expedite/comm/process_grid.h"
#include "expedite/tensor/dtype.h"

namespace expedite::model {

struct CompareOptions {
  std::filesystem::path model_dir;  // a Hugging Face folder: config.json and safetensors
  std::filesystem::path expected;   // safetensors: input_ids i64 [B, T], and any of the tensors below
  DType dtype = DType::f32;
  int threads = 1;
};

/// The largest error of one tensor of the file.
struct TensorError {
  std::string name;
  std::vector<std::int64_t> shape;
  double max_error = 0.0;     // |ours - expected|, NaN if ours is
  double max_expected = 0.0;  // |expected|

  /// What a tolerance is held against: the error as it is for large tensors (logits), and relative to the
  /// largest expected value for small ones (gradients).
  [[nodiscard]] double measure() const;
};

/// Runs `input_ids` (every row a sequence; rows are spread over the ranks) forward, backward from the mean
/// next-token loss, and backward from the auxiliary loss, and compares every tensor that the file holds:
///   logits [B, T, V], hidden_states.<layer> and final_hidden_state [B, T, H], router_logits.<layer> [B T,
///   E], loss, aux_loss (before its coefficient), grad.<parameter>, grad_aux.<parameter>.
/// An optional attention_mask [B, T] of zeros and ones marks padding: masked tokens are not run, and compared
/// nowhere. Collective; the result is on rank 0. Throws Error naming a tensor of the file that has no
/// counterpart or another shape.
[[nodiscard]] std::vector<TensorError> compare(const CompareOptions& options, const comm::ProcessGrid& grid);

}  // namespace expedite::model
