// `expedite bench kernels`: the speed of every kernel as a share of what this machine can do, measured in the
// same run.
#pragma once

#include <string>

namespace expedite::bench {

struct KernelBenchOptions {
  std::string json_path;  // where to write the results as JSON too; empty: nowhere
  std::string filter;     // only cases whose name or shape contains this
  int threads = 1;
};

/// Prints a line per kernel and shape. Yardstick and kernel take turns and the median of their ratios counts,
/// so that a busy machine slows both. Returns the exit code: 1 when no case matches the filter. Throws Error
/// when the file cannot be written.
int run_kernel_bench(const KernelBenchOptions& options);

}  // namespace expedite::bench
