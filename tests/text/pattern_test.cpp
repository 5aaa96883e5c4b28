#include "expedite/text/pattern.h"

#include <gtest/gtest.h>

#include <vector>

#include "expedite/base/error.h"
#include "expedite/base/random.h"
#include "expedite/text/class_matcher.h"
#include "expedite/text/regex_syntax.h"
#include "expedite/text/utf8.h"

namespace expedite::text {
namespace {

// As tokenizers write them: GPT-2, Llama 3, Qwen, DeepSeek-V3 (three), o200k of gpt-oss, and others'
// variants.
const std::vector<std::string> kWellKnown = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
    R"(\p{N}{1,3})",
    R"([一-龥぀-ゟ゠-ヿ]+)",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([\p{Han}]+|[\p{L}&&[^\p{Han}]]+| ?[^(\s|[.,!?…。，、।۔،])]+)",
    R"(\d{1,3}(?=(?:\d{3})*\b))",
};

std::vector<std::string> pieces_of(const Pattern& pattern, std::string_view text) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size();) {
    const auto match = pattern.find(text, at);
    if (!match) {
      break;
    }
    pieces.emplace_back(text.substr(match->begin, match->end - match->begin));
    pieces.back() += "@" + std::to_string(match->begin);
    at = match->end;
  }
  return pieces;
}

/// Characters that patterns tell apart, and some of everywhere.
std::string random_text(const Philox& random, std::uint64_t& draw, int length) {
  static const std::u32string kUsual =
      U" \t\n\r'sSdDtTmreRvlL19٣Ⅷ²aZéßǅʰ中文かナ한。，!?.;/"
      U"\\[]{}()<>&|~^$€+=_-­‍‌́ͅ​ "
      U" "
      U"　\u0085\u180E\uFEFFſK🙂🏽";
  std::string text;
  for (int i = 0; i < length; ++i) {
    const std::uint64_t bits = random.bits(draw++);
    char32_t c = kUsual[bits % kUsual.size()];
    if (bits >> 32U & 1U && bits >> 33U & 1U) {
      c = static_cast<char32_t>((bits >> 40U) % 0x32000);
    }
    if (c != 0 && (c < 0xD800 || c > 0xDFFF)) {
      append_character(text, c);
    }
  }
  return text;
}

TEST(Pattern, ClassMatcherIsPcre2OnEveryWellKnownSplit) {
  const Philox random(12, 0);
  std::uint64_t draw = 0;
  int built = 0;
  for (const std::string& regex : kWellKnown) {
    const auto fast = make_class_matcher(parse_regex(regex, "test"));
    if (fast == nullptr) {
      continue;
    }
    ++built;
    const auto slow = make_pcre2_pattern(regex, "test");
    for (int i = 0; i < 300; ++i) {
      const std::string text = random_text(random, draw, 1 + i % 60);
      ASSERT_EQ(pieces_of(*fast, text), pieces_of(*slow, text)) << regex << "\n" << text << "\ndraw " << draw;
    }
  }
  EXPECT_EQ(built, 10);  // all but the one that looks at word edges
}

TEST(Pattern, ClassMatcherIsPcre2OnRandomExpressions) {
  const Philox random(13, 0);
  std::uint64_t draw = 0;
  const auto pick = [&](std::uint64_t n) { return random.bits(draw++) % n; };
  const std::vector<std::string> sets = {"a", "b", "[ab]", "[^a]", "\\s", "[bc ]", "."};
  const std::vector<std::string> counts = {"",     "",   "?",  "*",  "+",  "{2}", "{1,3}",
                                           "{2,}", "??", "*?", "+?", "*+", "?+",  "++"};
  const auto sequence = [&](auto&& self, int depth) -> std::string {
    std::string text;
    for (std::uint64_t i = 0, n = 1 + pick(3); i < n; ++i) {
      const std::uint64_t kind = pick(8);
      if (kind == 0 && depth > 0) {
        text += "(?:" + self(self, depth - 1) + "|" + self(self, depth - 1) + ")" + (pick(2) != 0 ? "?" : "");
      } else if (kind == 1 && depth > 0) {
        text += (pick(2) != 0 ? "(?!" : "(?=") + self(self, depth - 1) + ")";
      } else {
        text += sets[pick(sets.size())] + counts[pick(counts.size())];
      }
    }
    return text;
  };
  for (int i = 0; i < 300; ++i) {
    const std::string regex = sequence(sequence, 2) + "|" + sequence(sequence, 2);
    const auto fast = make_class_matcher(parse_regex(regex, "test"));
    ASSERT_NE(fast, nullptr) << regex;
    const auto slow = make_pcre2_pattern(regex, "test");
    for (int k = 0; k < 10; ++k) {
      std::string text;
      for (std::uint64_t n = pick(12); n > 0; --n) {
        text += "aabbc \n"[pick(7)];
      }
      ASSERT_EQ(pieces_of(*fast, text), pieces_of(*slow, text)) << regex << "\n" << text;
    }
  }
}

TEST(Pattern, LongRunsTakeLinearTime) {
  for (const std::string& regex : kWellKnown) {
    const auto pattern = make_class_matcher(parse_regex(regex, "test"));
    if (pattern == nullptr) {
      continue;
    }
    for (const char* part : {" ", "A", "a", "中", "9", "\n", "!", "'"}) {
      std::string text;
      for (int i = 0; i < 100'000; ++i) {
        text += part;
      }
      EXPECT_LE(pieces_of(*pattern, text).size(), 100'000U);
    }
  }
}

TEST(Pattern, PropertiesAreUnicodes) {
  const auto all_of = [](const std::string& regex, const std::string& text) {
    return pieces_of(*make_regex_pattern(regex, "test"), text);
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(all_of("\\s+",
                   "a\xC2\x85"
                   "b"),
            (Pieces{"\xC2\x85@1"}));  // next line
  EXPECT_EQ(all_of("\\s+",
                   "a\xE1\xA0\x8E"
                   "b"),
            Pieces{});  // Mongolian vowel separator
  EXPECT_EQ(all_of("\\s+",
                   "a\xEF\xBB\xBF"
                   "b"),
            Pieces{});  // byte order mark
  EXPECT_EQ(all_of("\\d", "٣²"), (Pieces{"٣@0"}));
  EXPECT_EQ(all_of("(?i:k)", "kK\xE2\x84\xAA"), (Pieces{"k@0", "K@1"}));  // and not the Kelvin sign
  EXPECT_EQ(all_of("[[:alpha:]]+", "aé1"), (Pieces{"aé@0"}));
  EXPECT_EQ(all_of("[a-z&&[^aeiou]]+", "abcde"), (Pieces{"bcd@1"}));
  EXPECT_EQ(all_of("\\p{So}", "\xF0\x9F\xAB\xA8"), (Pieces{"\xF0\x9F\xAB\xA8@0"}));  // an emoji of Unicode 15
  EXPECT_EQ(all_of("\\p{So}", "\xF0\x9F\xAB\xA9"), (Pieces{"\xF0\x9F\xAB\xA9@0"}));  // of Unicode 16
  EXPECT_EQ(all_of("\\p{S}", "\xE2\x83\x81"), (Pieces{"\xE2\x83\x81@0"}));  // a currency of Unicode 17
  EXPECT_EQ(all_of("(?<=a)b", "abb"), (Pieces{"b@1"}));
  EXPECT_EQ(all_of("^b", "ab\nb"), (Pieces{"b@3"}));
  EXPECT_EQ(all_of("\\bb", "ab b"), (Pieces{"b@3"}));
  EXPECT_EQ(all_of("x{1,2}y{,1}", "xxxy"), (Pieces{"xx@0", "xy@2"}));
  EXPECT_EQ(all_of("a{b}", "a{b}"), (Pieces{"a{b}@0"}));
}

TEST(Pattern, NamesWhatItCannotRead) {
  for (const char* regex : {"(a", "a)", "[a", "\\p{Nothing}", "\\1", "(?P<a>b)", "*a", "a{3,2}",
                            "\\x{110000}", "\\", "(?", "[z-a]"}) {
    try {
      static_cast<void>(make_regex_pattern(regex, "file: field"));
      FAIL() << regex;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find("file: field: "), 0U) << error.what();
    }
  }
}

TEST(Utf8, ReplacesEachBrokenBeginningByOneCharacter) {
  const auto replaced = [](std::string_view text) { return replace_invalid(text, false).bytes; };
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replaced("a\xFF"
                     "b"),
            "a" + r + "b");
  EXPECT_EQ(replaced("\xE4\xB8"), r);  // a beginning that does not go on
  EXPECT_EQ(replaced("\xE4\xB8"
                     "A\x80"),
            r + "A" + r);
  EXPECT_EQ(replaced("\xC0\x80"), r + r);                  // overlong
  EXPECT_EQ(replaced("\xED\xA0\x80"), r + r + r);          // a surrogate
  EXPECT_EQ(replaced("\xF4\x90\x80\x80"), r + r + r + r);  // beyond the last
  EXPECT_EQ(replaced("\xF0\x9F\x99\x82\xF0\x9F\x99"), "\xF0\x9F\x99\x82" + r);
  const AlignedText aligned = replace_invalid("a\xFFz", true);
  EXPECT_EQ(aligned.origin, (std::vector<std::uint32_t>{0, 1, 2, 2, 2, 3}));
}

}  // namespace
}  // namespace expedite::text
