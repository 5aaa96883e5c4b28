// What of a text its tokens still say: decode(encode(text)) against the text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/text/tokenizer.h"

namespace expedite::text {

/// Bytes that a text has and its tokens do not say: unknown characters, spaces and line ends that normalising
/// made one, broken UTF-8.
struct TextLoss {
  std::int64_t bytes = 0;
  std::int64_t first_offset = 0;  // in the text, of the first
  std::string original;           // there, shortened
  std::string reads_back;         // what the tokens say of it
  bool operator==(const TextLoss&) const = default;
};

/// Compares `tokens`, the whole text's, with the text. `token_bytes`, which must be the encoder's, becomes
/// what of each token's bytes survives: the sum is text.size() minus what is lost. Parts that differ are
/// aligned character by character, so that a space more or less costs one byte.
[[nodiscard]] TextLoss find_loss(std::string_view text, std::span<const std::int32_t> tokens,
                                 std::span<std::uint32_t> token_bytes, const Tokenizer& tokenizer);

/// Whether the tokens say the text, byte by byte: then nothing is lost and nothing need be aligned.
[[nodiscard]] bool says_all(std::string_view text, std::span<const std::int32_t> tokens,
                            const Tokenizer& tokenizer);

/// For a message: in quotes, with what cannot be printed escaped.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace expedite::text
