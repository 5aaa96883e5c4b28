// Where a text can be cut without changing its tokens: between two characters that no token holds side by
// side.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "expedite/text/hash.h"
#include "expedite/text/huge_pages.h"
#include "expedite/text/utf8.h"

namespace expedite::text {

/// Models of SentencePiece's kind see a whole text as one piece. But no token crosses a pair of characters
/// that is inside of none, so both sides can be encoded by themselves, as words that come again and again.
/// Pairs are kept as bits of a table, by hash: a pair that shares another's bit is not cut, which is slower
/// and not wrong.
class Seams {
 public:
  Seams() : bits_(kBits / 64, 0) {}

  /// `token` may come of joining smaller ones.
  void add_token(std::string_view token) {
    for (std::size_t at = 0; at < token.size();) {
      const char32_t left = character_at(token.data() + at);
      at += character_length(token[at]);
      if (at < token.size()) {
        const std::size_t bit = bit_of(left, character_at(token.data() + at));
        bits_[bit / 64] |= std::uint64_t{1} << bit % 64;
      }
    }
  }

  /// The end of the part that begins at `from`. `joined(left, right)` tells of further pairs that belong
  /// together.
  template <typename Joined>
  [[nodiscard]] std::size_t part_end(std::string_view text, std::size_t from, const Joined& joined) const {
    char32_t left = character_at(text.data() + from);
    std::size_t at = from + character_length(text[from]);
    while (at < text.size()) {
      const char32_t right = character_at(text.data() + at);
      const std::size_t bit = bit_of(left, right);
      if ((bits_[bit / 64] >> bit % 64 & 1U) == 0 && !joined(left, right)) {
        return at;
      }
      at += character_length(text[at]);
      left = right;
    }
    return at;
  }

 private:
  static constexpr unsigned kLogBits = 21;
  static constexpr std::size_t kBits = std::size_t{1} << kLogBits;

  static std::size_t bit_of(char32_t left, char32_t right) {
    constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
    return ((std::uint64_t{left} << 32U | right) * kOdd) >> (64U - kLogBits);
  }

  Table<std::uint64_t> bits_;
};

}  // namespace expedite::text
