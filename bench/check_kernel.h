// Whether a kernel computes what its fp64 reference does.
#pragma once

#include <string>

#include "bench/kernel_case.h"

namespace expedite::bench {

struct KernelCheck {
  std::string result;  // that came nearest to its tolerance, or went beyond it
  double error = 0.0;  // the largest in it: |got - wanted| over the larger of |wanted| and the result's scale
  double tolerance = 0.0;
  std::string failure;  // empty: every element is within its tolerance; else the worst, and where
};

/// Runs the kernel once. Shapes that differ and values that are no numbers are failures too.
[[nodiscard]] KernelCheck check_kernel(const KernelCase& subject);

}  // namespace expedite::bench
