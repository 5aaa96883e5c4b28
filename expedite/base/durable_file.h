// Files that are on the disk when a function says so: writing, syncing and measuring through POSIX calls.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace expedite {

/// A file descriptor, closed when it goes.
class Descriptor {
 public:
  Descriptor() = default;
  /// open(2); throws Error naming `path`, with `purpose` ("write") in words.
  Descriptor(const std::filesystem::path& path, int flags, std::string_view purpose);
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int number() const { return number_; }
  void close();

 private:
  int number_ = -1;
};

/// Writes all of `text`, in one call where the system takes it at once. `path` is for the message.
void write_all(const Descriptor& file, std::string_view text, const std::filesystem::path& path);

/// Waits until the file's, or the folder's, content is on the disk.
void sync_path(const std::filesystem::path& path);

/// Creates or replaces a file, and syncs it.
void write_synced(const std::filesystem::path& path, std::string_view text);

/// Creates or replaces a file whole: whoever looks, even after a crash, finds the old text or the new. It is
/// written beside `path`, as path.new, and then renamed.
void replace_file(const std::filesystem::path& path, std::string_view text);

struct FileSum {
  std::int64_t size = 0;
  std::uint32_t crc32 = 0;  // of zlib
  bool operator==(const FileSum&) const = default;
};

/// Reads the whole file. Throws Error naming it.
[[nodiscard]] FileSum sum_file(const std::filesystem::path& path);

}  // namespace expedite
