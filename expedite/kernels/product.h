// One matrix product of a fixed shape as a oneDNN primitive, and the table that keeps them.
#pragma once

#include <omp.h>

#include <cstdint>

#include "expedite/tensor/dtype.h"

namespace expedite::kernels {

/// dst[m, n] (+)= a[m, k] · b[k, n]. Strides are those of stored rows, in elements.
struct ProductShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t a_stride = 0;
  std::int64_t b_stride = 0;
  std::int64_t dst_stride = 0;
  DType type = DType::f32;  // of a and b
  DType dst_type = DType::f32;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  int threads = 1;  // of the calling thread's team; oneDNN blocks a product for their number

  bool operator==(const ProductShape&) const = default;
};

/// What oneDNN's implementation of a product on this CPU makes a row's result depend on, besides the row.
enum class RowRule : std::uint8_t {
  unsupported,           // there is no implementation
  fixed_count,           // the number of rows, and the row's place among them
  independent_from_two,  // nothing, except that a single row takes another path
  independent            // nothing
};

/// The rule for products that differ from `shape` in m only (or in k, with transpose_a). Thread-safe, kept
/// per shape.
[[nodiscard]] RowRule row_rule(const ProductShape& shape);

/// Computes the product. The primitive is made the first time a shape is seen (a fraction of a millisecond)
/// and kept for the life of the process, so callers keep the number of shapes small; with transpose_a, one
/// serves every k. Thread-safe. Throws
/// Error when oneDNN refuses.
void run_product(const ProductShape& shape, const void* a, const void* b, void* dst);

/// While it lives, OpenMP regions that the current thread starts have at most this many threads.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~ThreadLimit() { omp_set_num_threads(before_); }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int before_;
};

}  // namespace expedite::kernels
