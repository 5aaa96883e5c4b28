// A caching memory pool that knows, by category, how many bytes are in use and how many were at the peak.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "expedite/tensor/view.h"

namespace expedite {

enum class MemoryCategory : std::uint8_t {
  weights,
  gradients,
  optimizer,
  activations,
  expert_activations,
  communication,
  workspace,
};
inline constexpr int kMemoryCategories = 7;

[[nodiscard]] std::string_view name_of(MemoryCategory category);

class MemoryPool;

/// Where a pool takes blocks from. Blocks are aligned to a cache line.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  /// Null: there is no memory left.
  [[nodiscard]] virtual void* take(std::int64_t bytes) = 0;
  virtual void give_back(void* block, std::int64_t bytes) noexcept = 0;
};

/// A block of the pool, returned to it on destruction. Aligned to a cache line; at least the bytes asked for.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  [[nodiscard]] void* data() const { return data_; }
  /// The bytes asked for, which is what the accounting counts.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] explicit operator bool() const { return pool_ != nullptr; }
  /// A contiguous tensor at the start of the block; an Error if the block is too small.
  [[nodiscard]] TensorView view(DType dtype, Shape shape, std::int64_t byte_offset = 0) const;

 private:
  friend class MemoryPool;
  MemoryPool* pool_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  std::int64_t capacity_ = 0;
  MemoryCategory category_ = MemoryCategory::workspace;
};

/// Thread-safe. Freed blocks are kept and handed out again for requests of the same size class, so that a
/// training step allocates from the system only the first time. Must outlive its buffers.
class MemoryPool {
 public:
  static constexpr std::int64_t kAlignment = 64;

  /// Takes blocks from the system.
  MemoryPool();
  /// Takes blocks from `source`, which must outlive the pool.
  explicit MemoryPool(BlockSource& source) : source_(source) {}
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  ~MemoryPool();

  /// Zero bytes is legal. The content is undefined. Throws Error when the system has no memory left.
  [[nodiscard]] Buffer allocate(std::int64_t bytes, MemoryCategory category);

  [[nodiscard]] std::int64_t current_bytes(MemoryCategory category) const;
  [[nodiscard]] std::int64_t peak_bytes(MemoryCategory category) const;
  [[nodiscard]] std::int64_t current_bytes() const;
  /// The largest sum over all categories at one moment, which may be less than the sum of their peaks.
  [[nodiscard]] std::int64_t peak_bytes() const;
  /// Bytes taken from the system, in use or cached.
  [[nodiscard]] std::int64_t reserved_bytes() const;
  /// Starts the peaks anew from what is in use now.
  void reset_peaks();
  /// Gives cached blocks back to the system.
  void trim();

 private:
  friend class Buffer;
  void release(Buffer& buffer) noexcept;
  void trim_locked();

  BlockSource& source_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::vector<void*>> free_;  // by capacity
  std::array<std::int64_t, kMemoryCategories> current_{};
  std::array<std::int64_t, kMemoryCategories> peak_{};
  std::int64_t total_ = 0;
  std::int64_t total_peak_ = 0;
  std::int64_t reserved_ = 0;
};

}  // namespace expedite
