// Small text functions: how far two names are from each other, and which known name a mistyped one was meant
// to be.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace expedite {

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours, in bytes.
/// Time and memory are O(|a| * |b|); meant for names.
[[nodiscard]] std::int64_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `name`, the first of equals; empty only when there are no candidates.
/// Names may be dotted paths: the right last part in the wrong place is one edit ("lr" is near
/// "optimizer.lr").
[[nodiscard]] std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// "a, b or c".
[[nodiscard]] std::string join_choices(std::span<const std::string> choices);

}  // namespace expedite
