// Memory of each rank that the other ranks of its node can read: a window, in MPI's word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "expedite/comm/communicator.h"
#include "expedite/tensor/memory_pool.h"

namespace expedite::comm {

/// Every rank reserves as much address space as the machine has memory, and takes pages of it as blocks are
/// used for the first time; so nothing has to be agreed on again when a rank needs more. The memory has no
/// name in any file system: it goes when the last rank of the node ends, however it ends.
class NodeMemory final : public BlockSource {
 public:
  /// Collective over `node`, a group of ranks of one machine. An Error where the system lets ranks not see
  /// each other's memory (/proc hidden, other users).
  explicit NodeMemory(const Communicator& node);
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;
  ~NodeMemory() override;

  /// Blocks of this rank. Thread-safe.
  [[nodiscard]] void* take(std::int64_t bytes) override;
  void give_back(void* block, std::int64_t bytes) noexcept override;

  /// How neighbours find a block of this rank.
  [[nodiscard]] std::int64_t offset_of(const void* block) const;
  /// A block of neighbour `rank` of the group, for reading.
  [[nodiscard]] const std::byte* at(int rank, std::int64_t offset) const {
    return bases_[static_cast<std::size_t>(rank)] + offset;
  }

 private:
  std::byte* map(int descriptor, bool writable) const;
  void unmap() noexcept;

  std::int64_t size_ = 0;
  int rank_ = 0;
  std::vector<std::byte*> bases_;  // by rank
  std::mutex mutex_;
  std::int64_t used_ = 0;
};

}  // namespace expedite::comm
