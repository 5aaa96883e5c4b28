// UTF-8: characters of a text, and text that is not valid made valid as Hugging Face's callers read it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "expedite/text/aligned_text.h"

namespace expedite::text {

/// Bytes of the character that begins with `first`, which must begin one in valid UTF-8.
[[nodiscard]] inline std::size_t character_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80U ? 1 : byte < 0xE0U ? 2 : byte < 0xF0U ? 3 : 4;
}

/// The character at `at` of valid UTF-8.
[[nodiscard]] inline char32_t character_at(const char* at) {
  const auto byte = [at](int i) { return static_cast<char32_t>(static_cast<unsigned char>(at[i])); };
  const char32_t first = byte(0);
  if (first < 0x80U) {
    return first;
  }
  if (first < 0xE0U) {
    return (first & 0x1FU) << 6U | (byte(1) & 0x3FU);
  }
  if (first < 0xF0U) {
    return (first & 0x0FU) << 12U | (byte(1) & 0x3FU) << 6U | (byte(2) & 0x3FU);
  }
  return (first & 0x07U) << 18U | (byte(1) & 0x3FU) << 12U | (byte(2) & 0x3FU) << 6U | (byte(3) & 0x3FU);
}

[[nodiscard]] inline bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

void append_character(std::string& text, char32_t character);

/// The first byte that is not part of valid UTF-8, or text.size().
[[nodiscard]] std::size_t find_invalid(std::string_view text);

/// U+FFFD in place of each longest beginning of a character that does not go on as one, and of each byte that
/// begins none: Unicode's recommendation (section 3.9), which Python, Rust and browsers follow.
[[nodiscard]] AlignedText replace_invalid(std::string_view text, bool aligned);

}  // namespace expedite::text
