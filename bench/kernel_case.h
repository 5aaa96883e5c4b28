// A kernel with operands of one shape: what it must compute, how to run it, and what it should give.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "expedite/tensor/memory_pool.h"
#include "expedite/tensor/view.h"
#include "tests/reference/matrix.h"

namespace expedite::bench {

enum class Limit { bf16_matmul, f32_matmul, copy };

/// A result of a kernel beside its fp64 reference. A value may be wrong by `tolerance` times the larger of
/// itself and `scale`.
struct KernelResult {
  std::string name;
  reference::Matrix wanted;
  std::function<reference::Matrix()> got;  // read when the kernel has run
  double tolerance;
  double scale;
};

struct PreparedKernel {
  std::function<void()> run;
  /// Works out what one run from here should give. Before that run: some kernels write over their operands.
  std::function<std::vector<KernelResult>()> results;
};

struct KernelCase {
  std::string name;
  std::string shape;
  Limit limit;
  double work;  // FLOP that must be computed, or bytes that must be read or written once
  /// Allocates and fills the operands, which what it returns owns.
  std::function<PreparedKernel()> prepare;
};

/// Owns a case's operands.
class Operands {
 public:
  /// Uniform in [-1, 1).
  TensorView values(DType type, Shape shape);
  TensorView zeros(DType type, Shape shape);
  MemoryPool& pool() { return pool_; }

 private:
  TensorView room(DType type, Shape shape);

  MemoryPool pool_;
  std::vector<Buffer> buffers_;
  std::uint64_t state_ = 1;
};

/// A case whose operands are made by `setup(operands)`, which returns a PreparedKernel.
template <typename Setup>
KernelCase make_case(Limit limit, double work, Setup setup) {
  return {"", "", limit, work, [setup]() -> PreparedKernel {
            auto operands = std::make_shared<Operands>();
            const PreparedKernel made = setup(*operands);
            return {[operands, made] { made.run(); }, [operands, made] { return made.results(); }};
          }};
}

[[nodiscard]] inline Limit matmul_limit(DType type) {
  return type == DType::bf16 ? Limit::bf16_matmul : Limit::f32_matmul;
}

[[nodiscard]] inline double product_flops(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

/// Half a unit in the last place, relative.
[[nodiscard]] inline double rounding(DType type) {
  return type == DType::bf16 ? 0x1p-8 : 0x1p-24;
}

/// The elements of a tensor, its first dimension as rows.
[[nodiscard]] reference::Matrix doubles(const ConstTensorView& x);

/// A result that lies in `view`.
[[nodiscard]] KernelResult result_in(std::string name, TensorView view, reference::Matrix wanted,
                                     double tolerance, double scale);

}  // namespace expedite::bench
