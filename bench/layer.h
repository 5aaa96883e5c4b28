// `expedite bench layer`: one MoE layer, forward and backward, for every combination of dispatcher, chunks,
// pipeline, window and recomputation asked for, each against the floors of the same run. `expedite bench
// dispatch`: the way to the experts and back alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "expedite/comm/process_grid.h"
#include "expedite/schedule/builders.h"
#include "expedite/schedule/ep_plan.h"
#include "expedite/tensor/dtype.h"

namespace expedite::bench {

/// The layer and the contenders; the names are the letters of the shapes.
struct LayerBenchOptions {
  std::int64_t tokens = 2048;  // T per rank
  std::int64_t hidden = 1024;
  std::int64_t ffn = 512;
  std::int64_t experts = 16;
  std::int64_t topk = 4;
  DType dtype = DType::bf16;
  double zipf = 0.0;     // exponent of the experts' popularity; 0: even
  bool training = true;  // false: forward only
  const schedule::Builder* builder = &schedule::layer_builders().front();

  std::vector<int> chunks = {1, 2, 4};
  std::vector<schedule::ChunkPipeline> pipelines = {schedule::ChunkPipeline::continuous};
  std::vector<int> windows = {2};
  std::vector<schedule::Dispatcher> dispatchers = {schedule::Dispatcher::alltoall};
  std::vector<schedule::MoeRecompute> recompute = {schedule::MoeRecompute::none};
  /// One more dispatcher, unless it is among them: that which cost::choose_dispatcher takes for this cluster.
  bool automatic = false;
  /// One more number of chunks, unless it is among them: that which cost::choose_chunks takes.
  bool automatic_chunks = false;
  std::string cluster_path;  // what they are told of the cluster; empty: what a short look shows

  int rounds = 9;  // measured, after one to warm up
  int threads = 0;
  std::string json_path;
  std::string trace_folder;  // for the trace of each contender's round of median time; empty: none
};

/// Every combination once: a window is the continuous pipeline's alone, so others have the first.
[[nodiscard]] std::vector<schedule::EpPlan> contenders(const LayerBenchOptions& options);

/// Prints a table. Contenders and floors take turns in every round; a time is the slowest rank's. Collective;
/// returns the exit code. Throws Error when the options make no layer or the file cannot be written.
int run_layer_bench(const LayerBenchOptions& options, const comm::ProcessGrid& grid);

}  // namespace expedite::bench
