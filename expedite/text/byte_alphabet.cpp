#include "expedite/text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "expedite/text/utf8.h"

namespace expedite::text {
namespace {

constexpr std::size_t kCharacters = 256 + 68;  // 68 bytes are no printable characters of Latin-1

/// By character, the byte or -1. Printable characters of Latin-1 stand for themselves, the other bytes are
/// written as U+0100 and on, in order.
std::array<std::int16_t, kCharacters> make_table() {
  std::array<std::int16_t, kCharacters> table = {};
  table.fill(-1);
  const auto is_printable = [](int c) {
    return (c >= '!' && c <= '~') || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
  };
  std::size_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    table[is_printable(byte) ? static_cast<std::size_t>(byte) : next++] = static_cast<std::int16_t>(byte);
  }
  return table;
}

}  // namespace

std::optional<std::string> from_byte_alphabet(std::string_view written) {
  static const auto kTable = make_table();
  std::string bytes;
  for (std::size_t at = 0; at < written.size(); at += character_length(written[at])) {
    const char32_t character = character_at(written.data() + at);
    if (character >= kCharacters || kTable[character] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kTable[character]));
  }
  return bytes;
}

}  // namespace expedite::text
