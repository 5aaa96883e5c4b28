// Byte-pair encoding as Hugging Face's `BPE` does it, on bytes or on characters.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "expedite/text/model.h"
#include "expedite/text/vocabulary.h"

namespace expedite::text {

struct BpeOptions {
  bool byte_level = false;     // tokens are bytes, and text begins as bytes; else as characters
  bool byte_fallback = false;  // a character without a token becomes its bytes, <0x00> to <0xFF>
  bool fuse_unk = false;       // unknown characters one after another are one unk_token
  bool ignore_merges = false;  // a piece that is a token is that one, however it would be merged
  std::int32_t unk = -1;       // for what has no token; -1: it is left out
};

/// `merges` in order of preference, the leftmost first among equals. A merge of tokens that are not in the
/// vocabulary, or into one that is not, is an Error that begins with `where`.
[[nodiscard]] std::unique_ptr<Model> make_bpe(Vocabulary vocabulary,
                                              const std::vector<std::pair<std::string, std::string>>& merges,
                                              const BpeOptions& options, const std::string& where);

/// The ids of <0x00> to <0xFF>, -1 for those that are not there.
[[nodiscard]] std::array<std::int32_t, 256> byte_tokens(const Vocabulary& vocabulary);

}  // namespace expedite::text
