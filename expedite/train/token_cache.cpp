#include "expedite/train/token_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include "expedite/base/durable_file.h"
#include "expedite/base/error.h"
#include "expedite/base/log.h"
#include "expedite/base/read_text.h"
#include "expedite/text/fingerprint.h"

namespace expedite::train {
namespace {

namespace fs = std::filesystem;

// A file: this, the hash of what follows, the content.
constexpr std::string_view kCacheFormat = "expedite tokens 1\n";
constexpr std::size_t kCacheHash = 32;

std::string header_of(const std::string& key, std::string_view content) {
  text::Fingerprint hash;
  hash.add(key);
  hash.add(content);
  return std::string(kCacheFormat) + hash.hex();
}

}  // namespace

fs::path TokenCache::file_of(const std::string& key) const {
  return folder_ / (key + ".tokens");
}

std::optional<std::string> TokenCache::find(const std::string& key) const {
  const fs::path file = file_of(key);
  std::error_code error;
  if (!fs::exists(file, error)) {
    return std::nullopt;
  }
  try {
    std::string text = read_text(file.string());
    const std::size_t begin = kCacheFormat.size() + kCacheHash;
    if (text.size() >= begin && text.starts_with(header_of(key, std::string_view(text).substr(begin)))) {
      text.erase(0, begin);
      return text;
    }
    spdlog::warn("{} is damaged: the text is encoded again", file.string());
  } catch (const Error& problem) {
    spdlog::warn("{}: the text is encoded again", problem.what());
  }
  return std::nullopt;
}

void TokenCache::put(const std::string& key, std::string_view content) const {
  const fs::path file = file_of(key);
  // Ranks of other runs may write the same at the same time: each under a name of its own.
  const fs::path made = folder_ / fmt::format("{}.{}.new", key, getpid());
  try {
    fs::create_directories(folder_);
    {
      const Descriptor out(made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, "write");
      write_all(out, header_of(key, content), made);
      write_all(out, content, made);
    }
    sync_path(made);
    fs::rename(made, file);
  } catch (const std::exception& problem) {
    std::error_code ignored;
    fs::remove(made, ignored);
    spdlog::warn("encoded text is not kept for the next time: {}", problem.what());
  }
}

}  // namespace expedite::train
