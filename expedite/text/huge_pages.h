// Tables that are looked at in no order: on large pages where the system has them, because every look would
// else miss the table of pages too.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

namespace expedite::text {

template <typename T>
struct HugePageAllocator {
  using value_type = T;

  HugePageAllocator() = default;
  template <typename U>
  explicit HugePageAllocator(const HugePageAllocator<U>& /*other*/) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    const std::size_t page = count * sizeof(T) >= kPage ? kPage : kLine;
    const std::size_t bytes = (count * sizeof(T) + page - 1) / page * page;
    void* memory = std::aligned_alloc(page, bytes);
    if (memory == nullptr) {
      throw std::bad_alloc();
    }
#ifdef MADV_HUGEPAGE
    if (page == kPage) {
      static_cast<void>(madvise(memory, bytes, MADV_HUGEPAGE));  // advice: may be refused
    }
#endif
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t /*count*/) {
    std::free(memory);
  }

  bool operator==(const HugePageAllocator&) const = default;

 private:
  static constexpr std::size_t kPage = std::size_t{2} << 20U;
  static constexpr std::size_t kLine = 64;
};

template <typename T>
using Table = std::vector<T, HugePageAllocator<T>>;

}  // namespace expedite::text
