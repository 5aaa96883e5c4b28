#include "expedite/tensor/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace expedite {
namespace {

// Size classes an eighth of a power of two apart: at most 12.5 % of a block is wasted, and sizes that wander
// from step to step with the routing still find a cached block.
std::int64_t size_class(std::int64_t bytes) {
  constexpr std::int64_t kSmallest = 4096;
  if (bytes <= kSmallest) {
    return kSmallest;
  }
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(bytes)));
  const std::int64_t step = std::max(power / 8, MemoryPool::kAlignment);
  return (bytes + step - 1) / step * step;
}

// Large blocks lie on huge pages where the system lets them: gathers touch a page per row, and then miss the
// TLB less.
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

std::align_val_t alignment_of(std::int64_t capacity) {
  return std::align_val_t{
      static_cast<std::size_t>(capacity >= kHugePage ? kHugePage : MemoryPool::kAlignment)};
}

class SystemMemory final : public BlockSource {
 public:
  [[nodiscard]] void* take(std::int64_t bytes) override {
    void* block = ::operator new(static_cast<std::size_t>(bytes), alignment_of(bytes), std::nothrow);
#ifdef MADV_HUGEPAGE
    if (block != nullptr && bytes >= kHugePage) {
      static_cast<void>(
          madvise(block, static_cast<std::size_t>(bytes), MADV_HUGEPAGE));  // advice: may be refused
    }
#endif
    return block;
  }
  void give_back(void* block, std::int64_t bytes) noexcept override {
    ::operator delete(block, alignment_of(bytes));
  }
};

SystemMemory& system_memory() {
  static SystemMemory memory;
  return memory;
}

}  // namespace

std::string_view name_of(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::weights:
      return "weights";
    case MemoryCategory::gradients:
      return "gradients";
    case MemoryCategory::optimizer:
      return "optimizer";
    case MemoryCategory::activations:
      return "activations";
    case MemoryCategory::expert_activations:
      return "expert_activations";
    case MemoryCategory::communication:
      return "communication";
    case MemoryCategory::workspace:
      return "workspace";
  }
  return "?";
}

Buffer::Buffer(Buffer&& other) noexcept {
  *this = std::move(other);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    if (pool_ != nullptr) {
      pool_->release(*this);
    }
    pool_ = std::exchange(other.pool_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    category_ = other.category_;
  }
  return *this;
}

Buffer::~Buffer() {
  if (pool_ != nullptr) {
    pool_->release(*this);
  }
}

TensorView Buffer::view(DType dtype, Shape shape, std::int64_t byte_offset) const {
  const std::int64_t needed = byte_offset + shape.elements() * size_of(dtype);
  require(needed <= bytes_, "a view of {} {} at byte {} needs {} bytes; its buffer has {}", name_of(dtype),
          to_string(shape), byte_offset, needed, bytes_);
  return {static_cast<std::byte*>(data_) + byte_offset, dtype, shape};
}

MemoryPool::MemoryPool() : source_(system_memory()) {}

MemoryPool::~MemoryPool() {
  trim();
}

Buffer MemoryPool::allocate(std::int64_t bytes, MemoryCategory category) {
  require(bytes >= 0, "cannot allocate {} bytes for {}", bytes, name_of(category));
  const std::int64_t capacity = size_class(bytes);
  const std::scoped_lock lock(mutex_);
  void* data = nullptr;
  if (auto cached = free_.find(capacity); cached != free_.end() && !cached->second.empty()) {
    data = cached->second.back();
    cached->second.pop_back();
  } else {
    data = source_.take(capacity);
    if (data == nullptr) {  // cached blocks of other sizes may be what is in the way
      trim_locked();
      data = source_.take(capacity);
    }
    require(data != nullptr,
            "out of memory: {} bytes for {}, with {} bytes in use; use a smaller micro-batch", capacity,
            name_of(category), total_);
    reserved_ += capacity;
  }
  const auto index = static_cast<std::size_t>(category);
  current_[index] += bytes;
  peak_[index] = std::max(peak_[index], current_[index]);
  total_ += bytes;
  total_peak_ = std::max(total_peak_, total_);

  Buffer buffer;
  buffer.pool_ = this;
  buffer.data_ = data;
  buffer.bytes_ = bytes;
  buffer.capacity_ = capacity;
  buffer.category_ = category;
  return buffer;
}

void MemoryPool::release(Buffer& buffer) noexcept {
  const std::scoped_lock lock(mutex_);
  free_[buffer.capacity_].push_back(buffer.data_);
  current_[static_cast<std::size_t>(buffer.category_)] -= buffer.bytes_;
  total_ -= buffer.bytes_;
  buffer.pool_ = nullptr;
}

std::int64_t MemoryPool::current_bytes(MemoryCategory category) const {
  const std::scoped_lock lock(mutex_);
  return current_[static_cast<std::size_t>(category)];
}

std::int64_t MemoryPool::peak_bytes(MemoryCategory category) const {
  const std::scoped_lock lock(mutex_);
  return peak_[static_cast<std::size_t>(category)];
}

std::int64_t MemoryPool::current_bytes() const {
  const std::scoped_lock lock(mutex_);
  return total_;
}

std::int64_t MemoryPool::peak_bytes() const {
  const std::scoped_lock lock(mutex_);
  return total_peak_;
}

std::int64_t MemoryPool::reserved_bytes() const {
  const std::scoped_lock lock(mutex_);
  return reserved_;
}

void MemoryPool::reset_peaks() {
  const std::scoped_lock lock(mutex_);
  peak_ = current_;
  total_peak_ = total_;
}

void MemoryPool::trim() {
  const std::scoped_lock lock(mutex_);
  trim_locked();
}

void MemoryPool::trim_locked() {
  for (auto& [capacity, blocks] : free_) {
    for (void* block : blocks) {
      source_.give_back(block, capacity);
    }
    reserved_ -= capacity * static_cast<std::int64_t>(blocks.size());
    blocks.clear();
  }
  free_.clear();
}

}  // namespace expedite
