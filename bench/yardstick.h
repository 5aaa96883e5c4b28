// What this machine can do at best, to hold measurements against: its matrix-product rate and its copy
// bandwidth. Both are sampled again and again beside what they are compared with, because a shared machine's
// speed drifts.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "expedite/tensor/dtype.h"

namespace expedite::bench {

/// Seconds on a clock that never jumps.
[[nodiscard]] inline double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A speed that can be sampled: each sample takes some 20 ms on the calling thread's OpenMP team.
class Yardstick {
 public:
  virtual ~Yardstick() = default;
  [[nodiscard]] virtual double sample() = 0;  // FLOP/s or bytes/s
  [[nodiscard]] virtual std::string_view name() const = 0;
};

/// The fastest of several large products that give what a product of `type` gives: oneDNN's, plain and with
/// weights in its own packed layout, and for bf16 also those of f32 and the project's own widened one. Which is
/// fastest is found on construction.
[[nodiscard]] std::unique_ptr<Yardstick> matmul_peak(DType type);

/// memcpy between buffers far larger than the caches, counting bytes read and bytes written. Where it fills
/// the caches with what it writes, stores past them are faster (the case "streaming copy"), and so may
/// kernels be.
[[nodiscard]] std::unique_ptr<Yardstick> copy_bandwidth();

}  // namespace expedite::bench
