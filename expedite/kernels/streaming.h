// When a kernel should write its result past the caches.
#pragma once

#include <cstdint>

#include "expedite/tensor/view.h"

namespace expedite::kernels {

/// A result of this size pushes more useful data out of the caches than a reader would find of it. Writing it
/// past them also saves reading each line before it is overwritten: 1.3 to 1.7 times the speed for a gather
/// or a SwiGLU of 16 MiB and more on a Zen 4 core, and no difference in the product that reads it.
inline constexpr std::int64_t kStreamedBytes = std::int64_t{8} << 20;

/// Whether `dst` is large enough, and its rows (and parts of rows that start at multiples of `part` columns)
/// are aligned for it. A kernel that works in place should not ask: the lines are in the cache already.
[[nodiscard]] inline bool worth_streaming(const TensorView& dst, std::int64_t part) {
  constexpr std::int64_t kLine = 64;
  const std::int64_t size = size_of(dst.dtype());
  return dst.bytes() >= kStreamedBytes && reinterpret_cast<std::uintptr_t>(dst.data()) % kLine == 0 &&
         dst.row_stride() * size % kLine == 0 && part * size % kLine == 0;
}

}  // namespace expedite::kernels
