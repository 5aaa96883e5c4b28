#include "expedite/kernels/matmul_speed.h"

#include <chrono>
#include <cstring>

#include "expedite/kernels/matmul.h"
#include "expedite/tensor/memory_pool.h"

namespace expedite::kernels {

double matmul_speed(DType type, std::int64_t m, std::int64_t n, std::int64_t k, double seconds) {
  MemoryPool pool;
  const auto filled = [&](std::int64_t rows, std::int64_t columns) {
    Buffer buffer = pool.allocate(rows * columns * size_of(type), MemoryCategory::workspace);
    std::memset(buffer.data(), 0x3C, static_cast<std::size_t>(buffer.bytes()));  // small numbers
    return buffer;
  };
  const Buffer x = filled(m, k);
  const Buffer w = filled(n, k);
  const Buffer y = filled(m, n);
  const auto multiply = [&] {
    matmul(x.view(type, {m, k}), w.view(type, {n, k}), y.view(type, {m, n}), {.transpose_b = true});
  };
  multiply();  // makes the primitive
  const auto begin = std::chrono::steady_clock::now();
  double products = 0.0;
  double taken = 0.0;
  do {
    multiply();
    products += 1.0;
    taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  } while (taken < seconds);
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * products / taken;
}

}  // namespace expedite::kernels
