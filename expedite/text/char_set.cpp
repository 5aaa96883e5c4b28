#include "expedite/text/char_set.h"

#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <cstdint>

#include "expedite/base/error.h"

namespace expedite::text {
namespace {

constexpr char32_t kLast = 0x10FFFF;
constexpr char32_t kLastAscii = 0x7F;

CharSet from_icu(const icu::UnicodeSet& set) {
  std::vector<CharRange> ranges;
  for (int32_t i = 0; i < set.getRangeCount(); ++i) {
    ranges.push_back(
        {static_cast<char32_t>(set.getRangeStart(i)), static_cast<char32_t>(set.getRangeEnd(i))});
  }
  return CharSet(std::move(ranges));
}

icu::UnicodeSet to_icu(const CharSet& set) {
  icu::UnicodeSet result;
  for (const CharRange& range : set.ranges()) {
    result.add(static_cast<UChar32>(range.first), static_cast<UChar32>(range.last));
  }
  return result;
}

CharSet icu_property(const std::string& name, const std::string& where) {
  icu::UnicodeSet set;
  UErrorCode status = U_ZERO_ERROR;
  set.applyPropertyAlias(icu::UnicodeString::fromUTF8(name), icu::UnicodeString(), status);
  require(U_SUCCESS(status), "{}: \\p{{{}}} is not a Unicode property that ICU knows", where, name);
  return from_icu(set);
}

struct YoungerCharacters {
  const char* category;
  char32_t first;
  char32_t last;
};

#include "expedite/text/younger_characters.inc"

/// Characters that ICU may be too old to know: those of categories in `mask`.
CharSet younger_characters(std::uint32_t mask) {
  std::vector<CharRange> ranges;
  for (const YoungerCharacters& characters : kYounger) {
    if (u_getPropertyValueEnum(UCHAR_GENERAL_CATEGORY_MASK, characters.category) & mask) {
      ranges.push_back({characters.first, characters.last});
    }
  }
  return CharSet(std::move(ranges));
}

}  // namespace

CharSet::CharSet(std::vector<CharRange> ranges) : ranges_(std::move(ranges)) {
  std::ranges::sort(ranges_);
  std::vector<CharRange> merged;
  for (const CharRange& range : ranges_) {
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  ranges_ = std::move(merged);
}

CharSet CharSet::of_characters(std::u32string_view characters) {
  std::vector<CharRange> ranges;
  for (const char32_t character : characters) {
    ranges.push_back({character, character});
  }
  return CharSet(std::move(ranges));
}

CharSet CharSet::all() {
  return CharSet({{0, kLast}});
}

CharSet CharSet::property(std::string_view name, const std::string& where) {
  if (name.starts_with('^')) {
    return property(name.substr(1), where).complement();
  }
  const std::string text(name);
  const CharSet set = icu_property(text, where);
  const std::int32_t mask = u_getPropertyValueEnum(UCHAR_GENERAL_CATEGORY_MASK, text.c_str());
  if (mask == UCHAR_INVALID_CODE) {
    return set;  // no category
  }
  constexpr std::uint32_t kAll = 0xFFFFFFFF;
  const CharSet older = set.intersect(younger_characters(kAll).complement());
  return older.unite(younger_characters(static_cast<std::uint32_t>(mask)));
}

bool CharSet::holds(char32_t character) const {
  const auto after = std::ranges::upper_bound(ranges_, character, {}, &CharRange::first);
  return after != ranges_.begin() && std::prev(after)->last >= character;
}

CharSet CharSet::complement() const {
  CharSet result;
  char32_t next = 0;
  for (const CharRange& range : ranges_) {
    if (range.first > next) {
      result.ranges_.push_back({next, range.first - 1});
    }
    next = range.last + 1;
  }
  if (next <= kLast) {
    result.ranges_.push_back({next, kLast});
  }
  return result;
}

CharSet CharSet::unite(const CharSet& other) const {
  std::vector<CharRange> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CharSet(std::move(both));
}

CharSet CharSet::intersect(const CharSet& other) const {
  return complement().unite(other.complement()).complement();
}

CharSet CharSet::fold_case() const {
  std::vector<CharRange> ascii;
  for (char32_t letter = 'a'; letter <= 'z'; ++letter) {
    const char32_t upper = letter - 'a' + 'A';
    if (holds(letter) || holds(upper)) {
      ascii.push_back({letter, letter});
      ascii.push_back({upper, upper});
    }
  }
  const CharSet beyond_ascii({{kLastAscii + 1, kLast}});
  icu::UnicodeSet others = to_icu(intersect(beyond_ascii));
  others.closeOver(USET_CASE_INSENSITIVE);
  others.removeAllStrings();
  return unite(CharSet(std::move(ascii))).unite(from_icu(others).intersect(beyond_ascii));
}

}  // namespace expedite::text
