#include "expedite/train/text_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <tuple>

#include "expedite/base/error.h"
#include "expedite/base/text.h"

namespace expedite::train {
namespace {

namespace fs = std::filesystem;

/// How a number of files that were left out is told, for one and for several.
struct SkipText {
  const char* one;
  const char* several;
};
constexpr std::array<SkipText, kSkips> kSkipTexts = {{
    {"1 file is binary (has a NUL byte: {1})", "{0} files are binary (have a NUL byte: {1}, ...)"},
    {"1 file is UTF-16 (convert it to UTF-8: {1})", "{0} files are UTF-16 (convert them to UTF-8: {1}, ...)"},
    {"1 link leads nowhere ({1})", "{0} links lead nowhere ({1}, ...)"},
    {"1 link leads to a folder around it ({1})", "{0} links lead to folders around them ({1}, ...)"},
    {"1 leads to what is read already ({1})", "{0} lead to what is read already ({1}, ...)"},
    {"1 is neither a file nor a folder ({1})", "{0} are neither files nor folders ({1}, ...)"},
    {"1 file is empty ({1})", "{0} files are empty ({1}, ...)"},
}};

/// UTF-16 begins with a mark or, without one, has a NUL at every other place of mostly Latin text.
bool is_utf16(const std::string& text) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    return true;
  }
  constexpr std::size_t kLook = 4096;
  const std::size_t length = std::min(text.size(), kLook) / 2 * 2;
  std::array<std::size_t, 2> nuls = {0, 0};  // at even and at odd places
  for (std::size_t i = 0; i < length; ++i) {
    nuls[i % 2] += text[i] == '\0' ? 1 : 0;
  }
  constexpr std::size_t kFewest = 4;  // to tell a habit from chance
  const std::size_t units = length / 2;
  return units >= kFewest && ((nuls[0] == 0 && 2 * nuls[1] > units) || (nuls[1] == 0 && 2 * nuls[0] > units));
}

[[noreturn]] void fail_unreadable(const fs::path& path, const std::string& why) {
  fail("data.path: cannot read {}: {}", path.string(), why);
}

std::pair<std::uint64_t, std::uint64_t> identity(const fs::path& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) {
    fail_unreadable(path, std::strerror(errno));
  }
  return {status.st_dev, status.st_ino};
}

/// Whether the folder that `link` leads to holds the link, at any depth.
bool leads_upwards(const fs::path& link) {
  const fs::path target = fs::canonical(link);
  fs::path folder = fs::canonical(link.parent_path());
  while (folder != target && folder != folder.parent_path()) {
    folder = folder.parent_path();
  }
  return folder == target;
}

}  // namespace

void Skipped::add(Skip why, const fs::path& file) {
  const auto kind = static_cast<std::size_t>(why);
  if (count_[kind]++ == 0) {
    first_[kind] = file.string();
  }
}

void Skipped::add(const Skipped& others) {
  for (std::size_t kind = 0; kind < count_.size(); ++kind) {
    if (count_[kind] == 0) {
      first_[kind] = others.first_[kind];
    }
    count_[kind] += others.count_[kind];
  }
}

std::int64_t Skipped::total() const {
  return std::accumulate(count_.begin(), count_.end(), std::int64_t{0});
}

std::string Skipped::text() const {
  std::string text;
  for (std::size_t kind = 0; kind < count_.size(); ++kind) {
    if (count_[kind] > 0) {
      const char* form = count_[kind] == 1 ? kSkipTexts[kind].one : kSkipTexts[kind].several;
      text += (text.empty() ? "" : ", ") + fmt::format(fmt::runtime(form), count_[kind], first_[kind]);
    }
  }
  return text;
}

struct TextFinder::Entry {
  TextFile file;
  bool linked = false;  // reached through a symbolic link
};

struct TextFinder::Walk {
  fs::path root;
  Skipped& skipped;
  std::vector<Entry> files = {};
  std::vector<fs::path> folder_links = {};  // seen, to be walked after all that is not behind a link
  std::set<Identity> folders = {};          // walked
  bool linked = false;                      // behind a link now
};

bool TextFinder::has_extension(const fs::path& file) const {
  const std::string name = file.filename().string();
  return extensions_.empty() || std::ranges::any_of(extensions_, [&](const std::string& extension) {
           return name.ends_with(extension.starts_with('.') ? extension : "." + extension);
         });
}

void TextFinder::look_at(const fs::directory_entry& entry, Walk& state) {
  std::error_code error;
  const fs::file_status status = entry.status(error);
  const bool link = entry.is_symlink();
  if (error == std::errc::too_many_symbolic_link_levels) {
    state.skipped.add(Skip::loop, entry.path());
  } else if (status.type() == fs::file_type::not_found) {
    state.skipped.add(Skip::dangling, entry.path());
  } else if (error) {
    fail_unreadable(entry.path(), error.message());
  } else if (fs::is_directory(status)) {
    if (link) {
      state.folder_links.push_back(entry.path());
    } else if (!state.folders.contains(identity(entry.path()))) {
      walk(entry.path(), state);
    }
  } else if (!has_extension(entry.path())) {
    return;
  } else if (fs::is_regular_file(status)) {
    state.files.push_back(
        {{entry.path(), entry.path().lexically_relative(state.root).generic_string()}, link || state.linked});
  } else {
    state.skipped.add(Skip::special, entry.path());
  }
}

void TextFinder::walk(const fs::path& folder, Walk& state) {
  state.folders.insert(identity(folder));
  std::vector<fs::directory_entry> entries(fs::directory_iterator(folder), {});
  std::ranges::sort(entries);
  for (const fs::directory_entry& entry : entries) {
    look_at(entry, state);
  }
}

std::vector<TextFile> TextFinder::take(std::vector<Entry> entries, Skipped& skipped) {
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::tie(a.linked, a.file.source) < std::tie(b.linked, b.file.source);
  });
  std::vector<TextFile> files;
  for (Entry& entry : entries) {
    if (taken_.insert(identity(entry.file.path)).second) {
      files.push_back(std::move(entry.file));
    } else {
      skipped.add(Skip::duplicate, entry.file.path);
    }
  }
  std::ranges::sort(files, {}, &TextFile::source);
  return files;
}

std::vector<TextFile> TextFinder::find(const fs::path& root, Skipped& skipped) {
  try {
    if (fs::is_regular_file(root)) {
      return take({{{root, root.filename().string()}}}, skipped);
    }
    if (!fs::is_directory(root)) {
      fail("data.path: {} {}", root.string(),
           fs::exists(root) ? "is neither a file nor a folder" : "does not exist");
    }
    Walk state{.root = root, .skipped = skipped};
    walk(root, state);
    state.linked = true;
    for (std::size_t i = 0; i < state.folder_links.size(); ++i) {  // which walking makes longer
      const fs::path link = state.folder_links[i];
      if (leads_upwards(link)) {
        skipped.add(Skip::loop, link);
      } else if (state.folders.contains(identity(link))) {
        skipped.add(Skip::duplicate, link);
      } else {
        walk(link, state);
      }
    }
    return take(std::move(state.files), skipped);
  } catch (const fs::filesystem_error& error) {
    fail_unreadable(error.path1().empty() ? root : error.path1(), error.code().message());
  }
}

std::optional<std::string> read_text_file(const fs::path& file, Skipped& skipped) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream.is_open()) {
    fail_unreadable(file, std::strerror(errno));
  }
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (stream.bad()) {
    fail_unreadable(file, std::strerror(errno));
  }
  if (!text.empty() && text.find('\0') == std::string::npos && !is_utf16(text)) {
    return text;
  }
  skipped.add(text.empty() ? Skip::empty : is_utf16(text) ? Skip::utf16 : Skip::binary, file);
  return std::nullopt;
}

std::int64_t require_text(std::span<const std::string> paths, const std::vector<std::string>& extensions) {
  TextFinder finder(extensions);
  std::int64_t bytes = 0;
  for (const std::string& path : paths) {
    Skipped skipped;
    const std::vector<TextFile> files = finder.find(path, skipped);
    const bool found = std::ranges::any_of(
        files, [&](const TextFile& file) { return read_text_file(file.path, skipped).has_value(); });
    if (!found && skipped.count(Skip::duplicate) == 0) {
      fail_without_text(path, skipped, extensions);
    }
    for (const TextFile& file : files) {
      std::error_code ignored;  // told when it is read
      const std::uintmax_t size = fs::file_size(file.path, ignored);
      bytes += ignored ? 0 : static_cast<std::int64_t>(size);
    }
  }
  return bytes;
}

void fail_without_text(const fs::path& root, const Skipped& skipped,
                       const std::vector<std::string>& extensions) {
  fail("data.path: {} holds no text: {}{}", root.string(),
       skipped.total() > 0 ? skipped.text() + ", and there is no other file" : "there is no file",
       extensions.empty() ? "" : fmt::format(" that ends in {} (data.extensions)", join_choices(extensions)));
}

}  // namespace expedite::train
