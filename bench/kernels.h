// `expedite bench kernels`: the speed of every kernel as a share of what this machine can do, measured in the
// same run.
#pragma once

#include <string>
#include <vector>

#include "bench/kernel_case.h"

namespace expedite::bench {

struct KernelBenchOptions {
  std::string json_path;  // where to write the results as JSON too; empty: nowhere
  std::string filter;     // only cases whose name or shape contains this
  int threads = 1;
  std::vector<std::string>
      cases;               // lines as kernel_cases.h reads them, or "help"; checked before they are timed
  std::string cases_path;  // of a file of such lines, # comments; empty: none
};

/// Prints a line per kernel and shape: the cases given, else the standing list. Yardstick and kernel take
/// turns and the median of their ratios counts, so that a busy machine slows both. Returns the exit code: 1
/// when no case matches the filter or a given one is not what its reference says. Throws Error when a case
/// cannot be understood, before anything runs, or a file not read or written.
int run_kernel_bench(const KernelBenchOptions& options);

/// The same for cases that are made already; `check`: against their references too.
int bench_kernel_cases(const std::vector<KernelCase>& cases, bool check, const KernelBenchOptions& options);

}  // namespace expedite::bench
