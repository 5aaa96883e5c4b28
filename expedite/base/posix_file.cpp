#include "expedite/base/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "expedite/base/error.h"

namespace expedite {
namespace {

// Linux moves at most 2 GiB - 4 KiB per call; ask for less than that.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;

std::string system_error_text(int code) {
  return std::generic_category().message(code);
}

}  // namespace

PosixFile::PosixFile(std::filesystem::path path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

PosixFile::PosixFile(PosixFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

PosixFile& PosixFile::operator=(PosixFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

PosixFile::~PosixFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

PosixFile PosixFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a FIFO that nobody writes must not hang; regular files ignore it.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  require(descriptor >= 0, "cannot open {}: {}", path.string(), system_error_text(errno));
  PosixFile file(path, descriptor);
  struct stat status = {};
  require(::fstat(descriptor, &status) == 0, "cannot inspect {}: {}", path.string(),
          system_error_text(errno));
  require(S_ISREG(status.st_mode), "{} is not a regular file", path.string());
  return file;
}

PosixFile PosixFile::create(const std::filesystem::path& path) {
  constexpr int kReadableByAll = 0644;
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kReadableByAll);
  require(descriptor >= 0, "cannot create {}: {}", path.string(), system_error_text(errno));
  return {path, descriptor};
}

std::int64_t PosixFile::size() const {
  struct stat status = {};
  require(::fstat(descriptor_, &status) == 0, "cannot inspect {}: {}", path_.string(),
          system_error_text(errno));
  return status.st_size;
}

void PosixFile::read_at(std::int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(descriptor_, bytes.data(), std::min(bytes.size(), kMaxTransfer), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    require(count >= 0, "cannot read {} at byte {}: {}", path_.string(), offset, system_error_text(errno));
    require(count > 0, "{} ends at byte {}, with {} bytes still to read: it was cut short", path_.string(),
            offset, bytes.size());
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
}

void PosixFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMaxTransfer));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    require(count >= 0, "cannot write {}: {}", path_.string(), system_error_text(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void PosixFile::sync() {
  require(::fsync(descriptor_) == 0, "cannot bring {} to disk: {}", path_.string(), system_error_text(errno));
}

void PosixFile::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  require(::close(descriptor) == 0, "cannot close {}: {}", path_.string(), system_error_text(errno));
}

}  // namespace expedite
