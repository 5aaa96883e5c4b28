// The kernels that `expedite bench kernels` measures, with the shapes and the work that is counted.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace expedite::bench {

enum class Limit { bf16_matmul, f32_matmul, copy };

struct KernelCase {
  std::string name;
  std::string shape;
  Limit limit;
  double work;  // FLOP that must be computed, or bytes that must be read or written once
  /// Allocates and fills the operands; the function that it returns runs the kernel once and owns them.
  std::function<std::function<void()>()> prepare;
};

[[nodiscard]] std::vector<KernelCase> kernel_cases();

}  // namespace expedite::bench
