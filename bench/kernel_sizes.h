// The kernels of a training step, and the sizes at which `expedite probe` measures each.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "expedite/cost/kernel_times.h"
#include "expedite/tensor/memory_pool.h"

namespace expedite::bench {

/// Memory that the operands of all measurements lie in, one measurement after the other.
class OperandMemory {
 public:
  OperandMemory();

  /// Before another kernel: what kernels make of their operands again and again may be numbers that are slow
  /// to compute with.
  void forget() { types_.assign(types_.size(), DType::i64); }
  /// A matrix of operand `role`, 0 to 5: of small numbers, or what a kernel has left there. Sets of operands,
  /// numbered from 0, lie apart.
  [[nodiscard]] TensorView matrix(int role, DType type, const Shape& shape, std::int64_t set = 0);
  /// How many sets of operands, of `bytes` in all, are together larger than a core's own caches. A kernel
  /// that goes through so many finds nothing in them, as a layer does not find its weights.
  [[nodiscard]] static std::int64_t sets(std::int64_t bytes);
  [[nodiscard]] MemoryPool& pool() { return pool_; }

 private:
  MemoryPool pool_;
  std::vector<Buffer> roles_;
  std::vector<DType> types_;  // of what lies in each role's memory
};

/// A kernel with its grid of sizes.
struct SizedKernel {
  std::string name;
  DType dtype = DType::bf16;
  std::vector<cost::GridAxis> axes;
  /// Makes a function that runs the kernel on operands of these sizes; called with 0, 1, 2, ... it may take
  /// another set each time.
  using Run = std::function<void(std::int64_t call)>;
  std::function<Run(OperandMemory& memory, std::span<const std::int64_t> sizes)> prepare;
  std::int64_t units = 1;  // of what times are given for, in one run: experts, heads
};

/// All that a step runs, in the order of its layers. `quick`: fewer sizes.
[[nodiscard]] std::vector<SizedKernel> sized_kernels(bool quick);

}  // namespace expedite::bench
