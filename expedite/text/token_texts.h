// The `decoder` of a tokenizer.json: the text that each token adds.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace expedite::text {

struct TokenTexts {
  std::vector<std::string> says;  // by id
  bool adds_space = false;        // a space at the beginning is the encoder's, and is taken away
};

/// `tokens` by id, as the file writes them, and which of them are added tokens. ByteLevel (first),
/// ByteFallback, Replace, Strip, Fuse, Metaspace or a Sequence of these; null says what is written. Others
/// are an Error that begins with `where`, names the type, and says which are read.
[[nodiscard]] TokenTexts make_token_texts(const nlohmann::json& decoder, const std::string& where,
                                          std::vector<std::string> tokens, const std::vector<bool>& added);

}  // namespace expedite::text
