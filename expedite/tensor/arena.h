// Lays several tensors one behind the other in one buffer, or measures how large that buffer must be.
#pragma once

#include <cstddef>
#include <cstdint>

#include "expedite/tensor/memory_pool.h"
#include "expedite/tensor/view.h"

namespace expedite {

class Arena {
 public:
  /// Measures only: the views it gives have no data.
  Arena() = default;
  /// Over memory that is no pool's.
  Arena(void* base, std::int64_t capacity) : base_(static_cast<std::byte*>(base)), capacity_(capacity) {}
  explicit Arena(Buffer& buffer) : base_(static_cast<std::byte*>(buffer.data())), capacity_(buffer.bytes()) {}

  /// The next tensor, contiguous and aligned as the pool's blocks are.
  TensorView take(DType dtype, Shape shape) {
    const std::int64_t begin = used_;
    const std::int64_t end = begin + shape.elements() * size_of(dtype);
    require(base_ == nullptr || end <= capacity_, "{} bytes do not fit a buffer of {}", end, capacity_);
    used_ = (end + MemoryPool::kAlignment - 1) / MemoryPool::kAlignment * MemoryPool::kAlignment;
    return {base_ == nullptr ? nullptr : base_ + begin, dtype, shape};
  }

  /// Bytes taken so far.
  [[nodiscard]] std::int64_t used() const { return used_; }

 private:
  std::byte* base_ = nullptr;
  std::int64_t capacity_ = 0;
  std::int64_t used_ = 0;
};

}  // namespace expedite
