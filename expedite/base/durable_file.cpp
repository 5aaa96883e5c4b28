#include "expedite/base/durable_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "expedite/base/error.h"

namespace expedite {

Descriptor::Descriptor(const std::filesystem::path& path, int flags, std::string_view purpose) {
  constexpr mode_t kMode = 0666;  // less the umask
  number_ = open(path.c_str(), flags | O_CLOEXEC, kMode);
  require(number_ >= 0, "{}: cannot open to {}: {}", path.string(), purpose, std::strerror(errno));
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

void Descriptor::close() {
  if (number_ >= 0) {
    ::close(number_);
    number_ = -1;
  }
}

void write_all(const Descriptor& file, std::string_view text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const ssize_t written = write(file.number(), text.data(), text.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    require(written >= 0, "{}: cannot write: {}", path.string(), std::strerror(errno));
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void sync_path(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY, "sync");
  require(fsync(file.number()) == 0, "{}: cannot sync: {}", path.string(), std::strerror(errno));
}

void write_synced(const std::filesystem::path& path, std::string_view text) {
  const Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC, "write");
  write_all(file, text, path);
  require(fsync(file.number()) == 0, "{}: cannot sync: {}", path.string(), std::strerror(errno));
}

void replace_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::path beside = path;
  beside += ".new";
  write_synced(beside, text);
  std::error_code error;
  std::filesystem::rename(beside, path, error);
  require(!error, "{}: cannot be replaced: {}", path.string(), error.message());
  sync_path(path.has_parent_path() ? path.parent_path() : ".");
}

FileSum sum_file(const std::filesystem::path& path) {
  constexpr std::size_t kBlock = 1 << 20;
  const Descriptor file(path, O_RDONLY, "read");
  std::vector<unsigned char> block(kBlock);
  FileSum sum = {.size = 0, .crc32 = static_cast<std::uint32_t>(crc32(0, nullptr, 0))};
  while (true) {
    const ssize_t count = read(file.number(), block.data(), block.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    require(count >= 0, "{}: cannot read: {}", path.string(), std::strerror(errno));
    if (count == 0) {
      return sum;
    }
    sum.crc32 = static_cast<std::uint32_t>(crc32(sum.crc32, block.data(), static_cast<uInt>(count)));
    sum.size += count;
  }
}

}  // namespace expedite
