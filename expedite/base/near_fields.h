// Which known field a mistyped or shortened one was meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace expedite {

/// The known name that `name` is a slip of: by two edits or fewer (one, in names below six letters), or word
/// for word the same but for words that are shortened ("attn_factor" of "attention_factor"). Empty where it
/// is none, and where it is known itself.
[[nodiscard]] std::string slip_of(std::string_view name, std::span<const std::string> known);

}  // namespace expedite
