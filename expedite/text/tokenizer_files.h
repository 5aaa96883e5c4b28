// Which files a tokenizer is made of.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace expedite::text {

inline constexpr const char* kByteTokenizer = "bytes";

/// The tokenizer.json or SentencePiece .model that `path`, a file or a folder, names. Throws Error that says
/// what was looked for.
[[nodiscard]] std::filesystem::path tokenizer_file(const std::filesystem::path& path);

/// Whether the folder `path`, or that of the file `path`, holds a tokenizer.
[[nodiscard]] bool has_tokenizer(const std::filesystem::path& path);

/// What has to lie in a Hugging Face folder for its readers to find this tokenizer: tokenizer.json,
/// tokenizer_config.json, special_tokens_map.json, added_tokens.json, vocab.json, merges.txt,
/// tokenizer.model, chat_template.jinja and generation_config.json, as far as they lie beside the tokenizer
/// that `name_or_path` names. Nothing for "bytes". A SentencePiece model of another name is copied as
/// tokenizer.model.
struct TokenizerFile {
  std::filesystem::path from;
  std::string name;  // in the folder that it is copied to
};
[[nodiscard]] std::vector<TokenizerFile> tokenizer_files(const std::string& name_or_path);

}  // namespace expedite::text
