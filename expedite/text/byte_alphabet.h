// GPT-2's alphabet for bytes: a printable character for each, so that tokens of bytes can be written as text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace expedite::text {

/// The bytes that `written` stands for, or nothing where it has a character that stands for none.
[[nodiscard]] std::optional<std::string> from_byte_alphabet(std::string_view written);

}  // namespace expedite::text
