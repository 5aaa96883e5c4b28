// Memory that a thread keeps for the inside of one kernel, so that products allocate nothing after the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace expedite::kernels {

/// A block that only grows. Its content does not survive growth.
class ScratchBlock {
 public:
  [[nodiscard]] void* reserve(std::int64_t bytes) {
    if (bytes > bytes_) {
      memory_.reset();  // before the next is taken: never two at once
      bytes_ = 0;
      memory_.reset(::operator new(static_cast<std::size_t>(bytes), kAlignment));
      bytes_ = bytes;
    }
    return memory_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{4096};  // a page, as oneDNN asks of its scratchpads

  struct Release {
    void operator()(void* memory) const { ::operator delete(memory, kAlignment); }
  };

  std::unique_ptr<void, Release> memory_;
  std::int64_t bytes_ = 0;
};

/// The calling thread's block for the purpose that the type `Purpose` names.
template <typename Purpose>
void* thread_scratch(std::int64_t bytes) {
  thread_local ScratchBlock block;
  // The analyzer takes the block for a local that dies here.
  return block.reserve(bytes);  // NOLINT(clang-analyzer-cplusplus.NewDelete)
}

}  // namespace expedite::kernels
