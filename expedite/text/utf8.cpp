#include "expedite/text/utf8.h"

#include <cstring>

namespace expedite::text {
namespace {

/// Bytes of the valid character at the beginning of `text`, or 0 and in `bad` the bytes to replace.
std::size_t valid_length(std::string_view text, std::size_t& bad) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  bad = 1;
  if (first < 0x80U) {
    return 1;
  }
  if (first < 0xC2U || first > 0xF4U) {
    return 0;
  }
  const std::size_t length = character_length(text[0]);
  // What may follow the first byte: no overlong forms, no surrogates, nothing above U+10FFFF.
  const unsigned char low = first == 0xE0U ? 0xA0U : first == 0xF0U ? 0x90U : 0x80U;
  const unsigned char high = first == 0xEDU ? 0x9FU : first == 0xF4U ? 0x8FU : 0xBFU;
  for (std::size_t i = 1; i < length; ++i) {
    if (i >= text.size() || byte(i) < (i == 1 ? low : 0x80U) || byte(i) > (i == 1 ? high : 0xBFU)) {
      bad = i;
      return 0;
    }
  }
  return length;
}

}  // namespace

void append_character(std::string& text, char32_t character) {
  const auto add = [&text](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (character < 0x80U) {
    add(character);
  } else if (character < 0x800U) {
    add(0xC0U | character >> 6U);
    add(0x80U | (character & 0x3FU));
  } else if (character < 0x10000U) {
    add(0xE0U | character >> 12U);
    add(0x80U | (character >> 6U & 0x3FU));
    add(0x80U | (character & 0x3FU));
  } else {
    add(0xF0U | character >> 18U);
    add(0x80U | (character >> 12U & 0x3FU));
    add(0x80U | (character >> 6U & 0x3FU));
    add(0x80U | (character & 0x3FU));
  }
}

std::size_t find_invalid(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t block = 0;
    if (at + sizeof(block) <= text.size()) {
      std::memcpy(&block, text.data() + at, sizeof(block));
      if ((block & 0x8080808080808080U) == 0) {
        at += sizeof(block);
        continue;
      }
    }
    std::size_t bad = 0;
    const std::size_t length = valid_length(text.substr(at), bad);
    if (length == 0) {
      return at;
    }
    at += length;
  }
  return at;
}

AlignedText replace_invalid(std::string_view text, bool aligned) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  Rewriter writer(text, aligned);
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t invalid = at + find_invalid(text.substr(at));
    writer.copy_until(invalid);
    if (invalid == text.size()) {
      break;
    }
    std::size_t bad = 0;
    static_cast<void>(valid_length(text.substr(invalid), bad));
    writer.replace_until(invalid + bad, kReplacement);
    at = invalid + bad;
  }
  return std::move(writer).take();
}

}  // namespace expedite::text
