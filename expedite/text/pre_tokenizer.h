// The `pre_tokenizer` of a tokenizer.json: how text is cut into the pieces that the model sees one by one.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/text/aligned_text.h"

namespace expedite::text {

struct Span {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool operator==(const Span&) const = default;
};

/// Pieces of a text, none of them empty, from its beginning to its end; what lies between two is dropped.
struct Pieces {
  AlignedText text;
  std::vector<Span> spans;
  std::vector<Span> made;   // of the split under way; kept for its memory
  bool begins_text = true;  // and not only what follows an added token

  [[nodiscard]] std::string_view at(const Span& span) const {
    return std::string_view(text.bytes).substr(span.begin, span.end - span.begin);
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  PreTokenizer() = default;
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  virtual void split(Pieces& pieces) const = 0;
};

struct PreTokenization {
  std::unique_ptr<PreTokenizer> splitter;
  bool byte_level = false;  // the model's tokens are of bytes, written in GPT-2's alphabet for bytes
};

/// ByteLevel (as the last part), Split, Digits, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit,
/// Metaspace, or a Sequence of these; null does nothing. Others are an Error that begins with `where`, names
/// the type, and says which are read.
[[nodiscard]] PreTokenization make_pre_tokenizer(const nlohmann::json& json, const std::string& where);

}  // namespace expedite::text
