#include "expedite/train/text_corpus.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <set>
#include <tuple>

#include "expedite/base/error.h"
#include "expedite/base/random.h"
#include "expedite/base/text.h"

namespace expedite::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPieces = 200;  // about as many documents as the text is cut into
constexpr std::int64_t kSmallestPiece = 1024;
constexpr std::int64_t kLargestPiece = 256 * 1024;

struct TextFile {
  std::string source;
  std::string text;
};

std::int64_t length_of(const std::string& text) {
  return static_cast<std::int64_t>(text.size());
}

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  require(stream.is_open(), "data.path: cannot read {}: {}", path.string(), std::strerror(errno));
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  require(!stream.bad(), "data.path: cannot read {}: {}", path.string(), std::strerror(errno));
  return text;
}

bool has_extension(const fs::path& file, const std::vector<std::string>& extensions) {
  const std::string name = file.filename().string();
  return extensions.empty() || std::ranges::any_of(extensions, [&](const std::string& extension) {
           return name.ends_with(extension.starts_with('.') ? extension : "." + extension);
         });
}

/// Regular files below `folder`, relative to it, sorted.
std::vector<std::string> list_files(const fs::path& folder, const std::vector<std::string>& extensions) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && !entry.is_symlink() && has_extension(entry.path(), extensions)) {
      files.push_back(entry.path().lexically_relative(folder).generic_string());
    }
  }
  std::ranges::sort(files);
  return files;
}

class Reader {
 public:
  Reader(const CorpusOptions& options, Corpus& corpus) : options_(options), corpus_(corpus) {}

  void read(const fs::path& root) {
    const std::size_t files_before = files_.size();
    const std::int64_t binary_before = corpus_.skipped_binary_files;
    bool seen = false;  // through another path
    if (fs::is_directory(root)) {
      for (const std::string& name : list_files(root, options_.extensions)) {
        seen = !add(root / name, name) || seen;
      }
    } else if (fs::is_regular_file(root)) {
      seen = !add(root, root.filename().string());
    } else {
      fail("data.path: {} {}", root.string(),
           fs::exists(root) ? "is neither a file nor a folder" : "does not exist");
    }
    if (files_.size() == files_before && !seen) {
      fail(
          "data.path: {} holds no text: {} files have a NUL byte, and there are no others that are not "
          "empty{}",
          root.string(), corpus_.skipped_binary_files - binary_before,
          options_.extensions.empty()
              ? ""
              : fmt::format(" and end in {} (data.extensions)", join_choices(options_.extensions)));
    }
  }

  [[nodiscard]] std::vector<TextFile>& files() { return files_; }

 private:
  /// False when the file has been taken before.
  bool add(const fs::path& path, const std::string& source) {
    if (!taken_.insert(fs::canonical(path)).second) {
      return false;
    }
    std::string text = read_file(path);
    if (text.find('\0') != std::string::npos) {
      ++corpus_.skipped_binary_files;
    } else if (!text.empty()) {
      files_.push_back({source, std::move(text)});
    }
    return true;
  }

  const CorpusOptions& options_;
  Corpus& corpus_;
  std::vector<TextFile> files_;
  std::set<fs::path> taken_;
};

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

/// Where a piece that begins at `begin` and should be `length` bytes ends.
std::size_t piece_end(const std::string& text, std::size_t begin, std::size_t length) {
  std::size_t end = begin + length;
  if (end >= text.size()) {
    return text.size();
  }
  const auto newline = text.rfind('\n', end - 1);
  if (newline != std::string::npos && newline + 1 > begin + length / 2) {
    return newline + 1;
  }
  constexpr std::size_t kLongestCharacter = 4;
  for (std::size_t back = 0; back < kLongestCharacter && back < length / 2; ++back) {
    if (!continues_character(text[end - back])) {
      return end - back;
    }
  }
  return end;  // not UTF-8
}

std::vector<Document> cut(std::vector<TextFile>& files) {
  const std::int64_t total = std::transform_reduce(files.begin(), files.end(), std::int64_t{0}, std::plus<>(),
                                                   [](const TextFile& file) { return length_of(file.text); });
  const auto length = static_cast<std::size_t>(std::clamp(total / kPieces, kSmallestPiece, kLargestPiece));
  std::vector<Document> documents;
  for (TextFile& file : files) {
    std::int64_t piece = 0;
    for (std::size_t begin = 0; begin < file.text.size();) {
      const std::size_t end = piece_end(file.text, begin, length);
      documents.push_back({file.source, piece++, file.text.substr(begin, end - begin)});
      begin = end;
    }
    file.text = {};  // the documents hold it now
  }
  return documents;
}

/// For each document whether it is for validation.
std::vector<bool> choose_validation(const std::vector<Document>& documents, double fraction,
                                    std::int64_t seed) {
  std::vector<std::tuple<std::uint64_t, std::size_t>> order;
  double total = 0.0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const Philox hash(static_cast<std::uint64_t>(seed), stream_of(documents[i].source));
    order.emplace_back(hash.bits(static_cast<std::uint64_t>(documents[i].piece)), i);
    total += static_cast<double>(documents[i].text.size());
  }
  std::ranges::sort(order);
  std::vector<bool> chosen(documents.size(), false);
  double bytes = 0.0;
  for (std::size_t i = 0; i + 1 < order.size() && bytes < fraction * total; ++i) {
    const std::size_t document = std::get<1>(order[i]);
    chosen[document] = true;
    bytes += static_cast<double>(documents[document].text.size());
  }
  return chosen;
}

}  // namespace

Corpus read_corpus(const CorpusOptions& options) {
  require(!options.paths.empty(), "data.path is empty: give text files or folders");
  require(options.validation_fraction >= 0.0 && options.validation_fraction < 1.0,
          "data.validation_fraction = {}: expected a number in [0, 1)", options.validation_fraction);
  Corpus corpus;
  Reader reader(options, corpus);
  for (const std::string& path : options.paths) {
    try {
      reader.read(path);
    } catch (const fs::filesystem_error& error) {
      fail("data.path: cannot read {}: {}", error.path1().empty() ? path : error.path1().string(),
           error.code().message());
    }
  }
  corpus.files = static_cast<std::int64_t>(reader.files().size());
  auto documents = cut(reader.files());
  const auto validation = choose_validation(documents, options.validation_fraction, options.seed);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    (validation[i] ? corpus.validation_bytes : corpus.train_bytes) += length_of(documents[i].text);
    (validation[i] ? corpus.validation : corpus.train).push_back(std::move(documents[i]));
  }
  return corpus;
}

TokenStream tokenize(std::span<const Document> documents, const Tokenizer& tokenizer, bool with_token_bytes) {
  TokenStream stream;
  for (const Document& document : documents) {
    stream.tokens.push_back(tokenizer.separator());
    if (with_token_bytes) {
      stream.token_bytes.push_back(0);
    }
    tokenizer.encode(document.text, stream.tokens, with_token_bytes ? &stream.token_bytes : nullptr);
    stream.text_bytes += length_of(document.text);
  }
  return stream;
}

}  // namespace expedite::train
