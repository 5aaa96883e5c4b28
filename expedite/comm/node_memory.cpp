#include "expedite/comm/node_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "expedite/base/error.h"
#include "expedite/comm/collectives.h"

namespace expedite::comm {
namespace {

constexpr std::int64_t kPage = 4096;

/// A file descriptor that is closed at the end.
class Descriptor {
 public:
  Descriptor(int number, const std::string& what) : number_(number) {
    require(number >= 0, "memory shared inside a node: {}: {}", what, std::strerror(errno));
  }
  ~Descriptor() { close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

struct Address {
  std::int64_t process = 0;
  std::int64_t descriptor = 0;
};

}  // namespace

NodeMemory::NodeMemory(const Communicator& node) : rank_(node.rank()) {
  // Larger than what can ever be used, since blocks that are given back leave holes.
  constexpr std::int64_t kTimesTheMemory = 4;
  size_ = kTimesTheMemory * static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const Descriptor own(memfd_create("expedite", MFD_CLOEXEC), "memfd_create");
  require(ftruncate(own.number(), size_) == 0, "memory shared inside a node: ftruncate to {} bytes: {}",
          size_, std::strerror(errno));
  const std::vector<Address> addresses = all_gather(node, Address{getpid(), own.number()});
  try {
    for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
      if (static_cast<int>(rank) == rank_) {
        bases_.push_back(map(own.number(), true));
        continue;
      }
      const std::string path =
          fmt::format("/proc/{}/fd/{}", addresses[rank].process, addresses[rank].descriptor);
      const Descriptor other(open(path.c_str(), O_RDONLY | O_CLOEXEC), "opening " + path);
      bases_.push_back(map(other.number(), false));
    }
  } catch (...) {
    unmap();
    throw;
  }
  barrier(node);  // before anybody's descriptor is closed
}

NodeMemory::~NodeMemory() {
  unmap();
}

std::byte* NodeMemory::map(int descriptor, bool writable) const {
  void* base = mmap(nullptr, static_cast<std::size_t>(size_), writable ? PROT_READ | PROT_WRITE : PROT_READ,
                    MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  require(base != MAP_FAILED, "memory shared inside a node: mapping {} bytes: {}", size_,
          std::strerror(errno));
#ifdef MADV_HUGEPAGE
  static_cast<void>(madvise(base, static_cast<std::size_t>(size_), MADV_HUGEPAGE));  // may be refused
#endif
  return static_cast<std::byte*>(base);
}

void NodeMemory::unmap() noexcept {
  for (std::byte* base : bases_) {
    munmap(base, static_cast<std::size_t>(size_));
  }
  bases_.clear();
}

void* NodeMemory::take(std::int64_t bytes) {
  const std::int64_t rounded = (bytes + kPage - 1) / kPage * kPage;
  const std::scoped_lock lock(mutex_);
  if (rounded > size_ - used_) {
    return nullptr;
  }
  std::byte* block = bases_[static_cast<std::size_t>(rank_)] + used_;
  used_ += rounded;
  return block;
}

void NodeMemory::give_back(void* block, std::int64_t bytes) noexcept {
  // Its pages, not its addresses.
  static_cast<void>(
      madvise(block, static_cast<std::size_t>((bytes + kPage - 1) / kPage * kPage), MADV_REMOVE));
}

std::int64_t NodeMemory::offset_of(const void* block) const {
  const std::int64_t offset = static_cast<const std::byte*>(block) - bases_[static_cast<std::size_t>(rank_)];
  require(offset >= 0 && offset < size_, "a block that is not in the memory shared inside the node");
  return offset;
}

}  // namespace expedite::comm
