#include "expedite/text/tokenizer.h"

#include "expedite/base/error.h"
#include "expedite/text/tokenizer_files.h"

namespace expedite::text {

void Tokenizer::encode(std::string_view text, std::vector<std::int32_t>& tokens,
                       std::vector<std::uint32_t>* token_bytes) const {
  encoder()->encode(text, tokens, token_bytes);
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    text += says(token);
  }
  if (adds_space() && text.starts_with(' ')) {
    text.erase(0, 1);
  }
  return text;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_path) {
  if (name_or_path == kByteTokenizer) {
    return make_byte_tokenizer();
  }
  const std::filesystem::path file = tokenizer_file(name_or_path);
  return file.extension() == ".json" ? make_hugging_face_tokenizer(file) : make_sentencepiece_tokenizer(file);
}

}  // namespace expedite::text
