// Tokens on disk, so that a text is encoded once: files that are named by what they were made from.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace expedite::train {

/// Content is any bytes. Whatever instant a crash comes at, and whoever writes at the same time, find() gives
/// what was put whole, or nothing.
class TokenCache {
 public:
  explicit TokenCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// The content that was put under `key`. A file that does not verify is told as a warning, and counts as
  /// not there.
  [[nodiscard]] std::optional<std::string> find(const std::string& key) const;
  /// A disk that cannot take it is told as a warning, and is no error.
  void put(const std::string& key, std::string_view content) const;
  [[nodiscard]] std::filesystem::path file_of(const std::string& key) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace expedite::train
