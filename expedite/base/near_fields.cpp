#include "expedite/base/near_fields.h"

#include <algorithm>
#include <cstdint>

#include "expedite/base/text.h"

namespace expedite {
namespace {

/// Letters of `whole` in their order, from its first on.
bool shortens(std::string_view part, std::string_view whole) {
  if (part.empty() || whole.empty() || part.front() != whole.front()) {
    return false;
  }
  for (const char letter : part) {
    const auto at = whole.find(letter);
    if (at == std::string_view::npos) {
      return false;
    }
    whole.remove_prefix(at + 1);
  }
  return true;
}

std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find('_'));
  text.remove_prefix(std::min(text.size(), word.size() + 1));
  return word;
}

bool same_words(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    const std::string_view left = take_word(a);
    const std::string_view right = take_word(b);
    if (!shortens(left, right) && !shortens(right, left)) {
      return false;
    }
  }
  return a.empty() && b.empty();
}

}  // namespace

std::string slip_of(std::string_view name, std::span<const std::string> known) {
  constexpr std::size_t kShort = 6;
  const std::string nearest = nearest_name(name, known);
  if (nearest.empty() || nearest == name) {
    return "";
  }
  const std::int64_t edits = name.size() < kShort ? 1 : 2;
  if (edit_distance(name, nearest) <= edits) {
    return nearest;
  }
  const auto found =
      std::ranges::find_if(known, [&](const std::string& other) { return same_words(name, other); });
  return found == known.end() ? "" : *found;
}

}  // namespace expedite
