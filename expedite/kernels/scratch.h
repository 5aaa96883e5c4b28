// Memory that a thread keeps for the inside of one kernel, so that products allocate nothing after the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

namespace expedite::kernels {

/// A block that only grows. Its content does not survive growth.
class ScratchBlock {
 public:
  ScratchBlock() = default;
  ScratchBlock(const ScratchBlock&) = delete;
  ScratchBlock& operator=(const ScratchBlock&) = delete;
  ~ScratchBlock() { release(); }

  [[nodiscard]] void* reserve(std::int64_t bytes) {
    if (bytes > bytes_) {
      release();
      data_ = ::operator new(static_cast<std::size_t>(bytes), kAlignment);
      bytes_ = bytes;
    }
    return data_;
  }

 private:
  static constexpr std::align_val_t kAlignment{4096};  // a page, as oneDNN asks of its scratchpads

  void release() {
    ::operator delete(data_, kAlignment);
    data_ = nullptr;
    bytes_ = 0;
  }

  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// The calling thread's block for the purpose that the type `Purpose` names.
template <typename Purpose>
void* thread_scratch(std::int64_t bytes) {
  thread_local ScratchBlock block;
  return block.reserve(bytes);
}

}  // namespace expedite::kernels
