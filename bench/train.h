// `expedite bench train`: model FLOP utilisation of whole training steps against the matmul peak of the same
// run.
#pragma once

#include <cstdint>
#include <string>

#include "expedite/comm/process_grid.h"
#include "expedite/tensor/dtype.h"

namespace expedite::bench {

/// The model and the step; the names are the letters of the shapes.
struct TrainBenchOptions {
  std::int64_t tokens = 2048;  // T per rank, one sequence
  std::int64_t hidden = 1024;
  std::int64_t ffn = 512;
  std::int64_t experts = 16;
  std::int64_t topk = 4;
  std::int64_t layers = 4;
  std::int64_t heads = 16;
  std::int64_t kv_heads = 16;
  std::int64_t vocab = 257;
  DType dtype = DType::bf16;
  int steps = 7;  // measured, after one to warm up
  int threads = 1;
  std::string json_path;
};

/// FLOP that the model itself needs for one step over T tokens, forward and backward, attention counted
/// causally: recomputation, padding and the optimizer count for nothing.
[[nodiscard]] double model_flop(const TrainBenchOptions& options);

/// Prints each part of the step and the utilisation, as a table. Collective; returns the exit code. Throws
/// Error when the file cannot be written.
int run_train_bench(const TrainBenchOptions& options, const comm::ProcessGrid& grid);

}  // namespace expedite::bench
