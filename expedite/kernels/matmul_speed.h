// How fast this rank's cores multiply matrices of one shape.
#pragma once

#include <cstdint>

#include "expedite/tensor/dtype.h"

namespace expedite::kernels {

/// FLOP/s of rows [m, k] times weights stored [n, k], as a layer multiplies them, on the calling thread's
/// OpenMP team; a multiplication and an addition are two. One product to warm up, then as many as take
/// `seconds`, at least one. m, n, k >= 1.
[[nodiscard]] double matmul_speed(DType type, std::int64_t m, std::int64_t n, std::int64_t k, double seconds);

}  // namespace expedite::kernels
