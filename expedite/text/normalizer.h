// The `normalizer` of a tokenizer.json: what is done to text before it is split.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "expedite/text/aligned_text.h"

namespace expedite::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  Normalizer() = default;
  Normalizer(const Normalizer&) = delete;
  Normalizer& operator=(const Normalizer&) = delete;

  /// `text` is valid UTF-8, and so is the result.
  [[nodiscard]] virtual AlignedText normalize(AlignedText text) const = 0;
};

/// NFC, NFD, NFKC, NFKD, Replace, Prepend, Lowercase, Strip, StripAccents, or a Sequence of these; null does
/// nothing. Others are an Error that begins with `where`, names the type, and says which are read.
[[nodiscard]] std::unique_ptr<Normalizer> make_normalizer(const nlohmann::json& json,
                                                          const std::string& where);

}  // namespace expedite::text
