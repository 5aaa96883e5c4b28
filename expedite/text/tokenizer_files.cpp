#include "expedite/text/tokenizer_files.h"

#include <array>

#include "expedite/base/error.h"

namespace expedite::text {
namespace {

namespace fs = std::filesystem;

constexpr std::array kTokenizers = {"tokenizer.json", "tokenizer.model"};
constexpr std::array kBeside = {"tokenizer.json",
                                "tokenizer_config.json",
                                "special_tokens_map.json",
                                "added_tokens.json",
                                "vocab.json",
                                "merges.txt",
                                "tokenizer.model",
                                "chat_template.jinja",
                                "generation_config.json"};

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

}  // namespace

fs::path tokenizer_file(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    require(
        is_file(path),
        "data.tokenizer = {}: no such file; expected bytes, a folder, a tokenizer.json, or a SentencePiece "
        ".model",
        path.string());
    return path;
  }
  for (const char* name : kTokenizers) {
    if (is_file(path / name)) {
      return path / name;
    }
  }
  fail("data.tokenizer = {}: the folder has neither a tokenizer.json nor a tokenizer.model", path.string());
}

bool has_tokenizer(const fs::path& path) {
  std::error_code error;
  const fs::path folder = fs::is_directory(path, error) ? path : path.parent_path();
  return is_file(folder / kTokenizers[0]) || is_file(folder / kTokenizers[1]);
}

std::vector<TokenizerFile> tokenizer_files(const std::string& name_or_path) {
  if (name_or_path == kByteTokenizer) {
    return {};
  }
  const fs::path file = tokenizer_file(name_or_path);
  const std::string own = file.extension() == ".json" ? kTokenizers[0] : kTokenizers[1];
  std::vector<TokenizerFile> files = {{file, own}};
  for (const char* name : kBeside) {
    // A tokenizer of another kind or name that happens to lie there is not this one.
    const bool other_tokenizer = file.filename() != own &&
                                 (name == std::string(kTokenizers[0]) || name == std::string(kTokenizers[1]));
    if (name != own && !other_tokenizer && is_file(file.parent_path() / name)) {
      files.push_back({file.parent_path() / name, name});
    }
  }
  return files;
}

}  // namespace expedite::text
