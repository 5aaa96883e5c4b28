// Which files of a run's `data.path` are text: found in folders, each once, and read.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace expedite::train {

/// Why a file, or a link to one, is left out.
enum class Skip : std::uint8_t { binary, utf16, dangling, loop, duplicate, special, empty };
inline constexpr int kSkips = 7;

/// How many files were left out, and the first of each kind.
class Skipped {
 public:
  void add(Skip why, const std::filesystem::path& file);
  void add(const Skipped& others);
  [[nodiscard]] std::int64_t count(Skip why) const { return count_[static_cast<std::size_t>(why)]; }
  [[nodiscard]] std::int64_t total() const;
  /// "2 files are binary (a NUL byte; image.png), 1 link leads nowhere (old.txt)"; empty when none was.
  [[nodiscard]] std::string text() const;

 private:
  std::array<std::int64_t, kSkips> count_{};
  std::array<std::string, kSkips> first_{};
};

struct TextFile {
  std::filesystem::path path;
  std::string source;  // path relative to the folder given; its name for a file
};

/// Finds files below folders. Symbolic links are followed, to files and to folders; whatever way leads to a
/// file, it counts once, as told by its device and inode. A file's own name goes before that of a link to it,
/// and among links the first one's.
class TextFinder {
 public:
  /// `extensions`: ".pod" or "pod"; empty: all. Not asked of files that are given themselves.
  explicit TextFinder(std::vector<std::string> extensions) : extensions_(std::move(extensions)) {}

  /// The files of one path that earlier calls have not found, sorted by source. Throws Error naming what does
  /// not exist or cannot be read.
  [[nodiscard]] std::vector<TextFile> find(const std::filesystem::path& root, Skipped& skipped);

 private:
  using Identity = std::pair<std::uint64_t, std::uint64_t>;  // device, inode
  struct Entry;
  struct Walk;

  void walk(const std::filesystem::path& folder, Walk& state);
  void look_at(const std::filesystem::directory_entry& entry, Walk& state);
  [[nodiscard]] std::vector<TextFile> take(std::vector<Entry> entries, Skipped& skipped);
  [[nodiscard]] bool has_extension(const std::filesystem::path& file) const;

  std::vector<std::string> extensions_;
  std::set<Identity> taken_;
};

/// A file's content, or nothing when it is not text, which `skipped` then counts. Throws Error naming a file
/// that cannot be read.
[[nodiscard]] std::optional<std::string> read_text_file(const std::filesystem::path& file, Skipped& skipped);

/// Throws Error unless each of the paths exists and holds text. Reads no further than the first text of each.
/// Returns the bytes of all the files, of which some may turn out not to be text.
std::int64_t require_text(std::span<const std::string> paths, const std::vector<std::string>& extensions);

/// The Error about a path in which no text was found.
[[noreturn]] void fail_without_text(const std::filesystem::path& root, const Skipped& skipped,
                                    const std::vector<std::string>& extensions);

}  // namespace expedite::train
