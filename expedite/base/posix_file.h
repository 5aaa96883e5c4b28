// A file descriptor with an owner, whose every call is checked: errors name the file and what the system
// said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace expedite {

class PosixFile {
 public:
  /// Opens a regular file for reading. Throws Error when it is missing, unreadable or not a regular file.
  [[nodiscard]] static PosixFile open(const std::filesystem::path& path);
  /// Creates a file for writing, or empties an existing one.
  [[nodiscard]] static PosixFile create(const std::filesystem::path& path);

  PosixFile(PosixFile&& other) noexcept;
  PosixFile& operator=(PosixFile&& other) noexcept;
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;
  ~PosixFile();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Bytes of the file as it was opened.
  [[nodiscard]] std::int64_t size() const;
  /// Fills `bytes` from `offset`; may be called from several threads. Throws Error if the file ends before.
  /// Reads rather than maps: a file that someone truncates is then an Error and not a fatal signal.
  void read_at(std::int64_t offset, std::span<std::byte> bytes) const;
  /// Appends all of `bytes`, or throws Error (disk full, quota, input/output error).
  void write(std::span<const std::byte> bytes);
  /// Returns when the content is on the disk.
  void sync();
  /// Closes now, so that an error of the last write is not lost. Nothing else may be called afterwards.
  void close();

 private:
  PosixFile(std::filesystem::path path, int descriptor);

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace expedite
