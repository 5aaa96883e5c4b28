// Sets of Unicode characters, with ICU's properties.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace expedite::text {

struct CharRange {
  char32_t first = 0;
  char32_t last = 0;
  auto operator<=>(const CharRange&) const = default;
};

/// Sorted ranges that neither touch nor overlap.
class CharSet {
 public:
  CharSet() = default;
  explicit CharSet(std::vector<CharRange> ranges);  // in any order
  [[nodiscard]] static CharSet of(char32_t character) { return CharSet({{character, character}}); }
  [[nodiscard]] static CharSet of_characters(std::u32string_view characters);
  [[nodiscard]] static CharSet all();
  /// A general category ("L", "Lu", "Letter"), script ("Han") or binary property ("White_Space",
  /// "Alphabetic") by any of its Unicode names; "^L" and "Any" too. Characters that
  /// Unicode 15.1 to 17 assigned have their categories with an older ICU too. Throws Error for other names,
  /// beginning with `where`.
  [[nodiscard]] static CharSet property(std::string_view name, const std::string& where);

  [[nodiscard]] const std::vector<CharRange>& ranges() const { return ranges_; }
  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  [[nodiscard]] bool holds(char32_t character) const;
  [[nodiscard]] CharSet complement() const;
  [[nodiscard]] CharSet unite(const CharSet& other) const;
  [[nodiscard]] CharSet intersect(const CharSet& other) const;
  /// With the other cases of its characters. ASCII letters get each other only, and neither the long s nor
  /// the Kelvin sign.
  [[nodiscard]] CharSet fold_case() const;
  bool operator==(const CharSet&) const = default;

 private:
  std::vector<CharRange> ranges_;
};

}  // namespace expedite::text
