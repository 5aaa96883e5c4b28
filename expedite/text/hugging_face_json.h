// A tokenizer.json as the parts that encode and decode with it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "expedite/text/added_tokens.h"
#include "expedite/text/model.h"
#include "expedite/text/normalizer.h"
#include "expedite/text/pre_tokenizer.h"
#include "expedite/text/token_texts.h"

namespace expedite::text {

struct HuggingFaceParts {
  std::string where;  // the file, for messages
  std::string fingerprint;
  AddedTokenFinder raw_added;         // looked for in the text as it is
  AddedTokenFinder normalized_added;  // looked for after normalising
  std::unique_ptr<Normalizer> normalizer;
  PreTokenization pre_tokenizer;
  std::unique_ptr<Model> model;
  TokenTexts texts;
  std::int32_t separator = -1;
};

/// Reads the file, and beside it tokenizer_config.json and config.json for the separator. Throws Error naming
/// file and field for what is missing, contradicts, or is not read.
[[nodiscard]] HuggingFaceParts read_hugging_face_tokenizer(const std::filesystem::path& file);

}  // namespace expedite::text
