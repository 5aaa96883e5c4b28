// `expedite bench pipeline`: every kind of pipeline simulated with the same layers, side by side.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/pipeline_model.h"
#include "expedite/cost/bubble.h"

namespace expedite::bench {

struct PipelineBenchOptions {
  std::vector<schedule::PipelineKind> kinds;
  PipelineModel model;
  /// Instead of layers, one task per virtual stage, micro-batch and pass, with equal stages: milliseconds.
  bool coarse = false;
  cost::StageTimes stage_ms = {2.0, 2.0, 1.0, 4.0};
  bool contention = false;
  std::filesystem::path trace_folder;  // empty: none; else KIND.json of the first rank of each stage
  std::string json_path;
};

/// Prints one line per kind: the step, what of it is bubble and what exposed, how much communication is
/// hidden, and how long building and simulating took. A kind that cannot run in this shape has a line that
/// says what would be legal. Returns the exit code: 1 when no kind could run. Throws Error when a file cannot
/// be written.
int run_pipeline_bench(const PipelineBenchOptions& options);

}  // namespace expedite::bench
