#include "expedite/text/regex_syntax.h"

#include <algorithm>
#include <optional>

#include "expedite/base/error.h"
#include "expedite/text/utf8.h"

namespace expedite::text {
namespace {

using Kind = RegexNode::Kind;
using Repeat = RegexNode::Repeat;

CharSet property(std::string_view name) {
  return CharSet::property(name, "");
}

CharSet hex_digits() {
  return CharSet({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
}

std::u32string decode(std::string_view text) {
  std::u32string characters;
  for (std::size_t at = 0; at < text.size(); at += character_length(text[at])) {
    characters.push_back(character_at(text.data() + at));
  }
  return characters;
}

std::string to_ascii(std::u32string_view text) {
  std::string bytes;
  for (const char32_t c : text) {
    append_character(bytes, c);
  }
  return bytes;
}

/// Sets that a letter behind a backslash stands for.
std::optional<CharSet> escaped_set(char32_t letter) {
  switch (letter) {
    case 's':
      return property("White_Space");
    case 'S':
      return property("White_Space").complement();
    case 'd':
      return property("Nd");
    case 'D':
      return property("Nd").complement();
    case 'w':
      return word_characters();
    case 'W':
      return word_characters().complement();
    case 'h':
      return hex_digits();
    case 'H':
      return hex_digits().complement();
    default:
      return std::nullopt;
  }
}

std::optional<CharSet> posix_set(std::string_view name) {
  if (name == "alpha") return property("Alphabetic");
  if (name == "alnum") return property("Alphabetic").unite(property("Nd"));
  if (name == "digit") return property("Nd");
  if (name == "lower") return property("Lowercase");
  if (name == "upper") return property("Uppercase");
  if (name == "space") return property("White_Space");
  if (name == "blank") return property("Zs").unite(CharSet::of('\t'));
  if (name == "punct") return property("P").unite(property("S"));
  if (name == "cntrl") return property("Cc");
  if (name == "xdigit") return hex_digits();
  if (name == "word") return word_characters();
  return std::nullopt;
}

class Parser {
 public:
  Parser(std::string_view pattern, const std::string& where)
      : text_(decode(pattern)), pattern_(pattern), where_(where) {}

  std::vector<RegexSequence> parse() {
    std::vector<RegexSequence> result = alternatives(false);
    check(at_ == text_.size(), "a ')' too many");
    return result;
  }

 private:
  template <typename... Args>
  void check(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
    if (!condition) {
      fail("{}: the regular expression {} cannot be read at its character {}: {}", where_, pattern_, at_ + 1,
           fmt::format(format, std::forward<Args>(args)...));
    }
  }

  [[nodiscard]] bool more() const { return at_ < text_.size(); }
  [[nodiscard]] char32_t peek() const { return more() ? text_[at_] : U'\0'; }
  [[nodiscard]] bool sees(std::u32string_view what) const {
    return std::u32string_view(text_).substr(at_).starts_with(what);
  }
  bool take(std::u32string_view what) {
    const bool seen = sees(what);
    at_ += seen ? what.size() : 0;
    return seen;
  }
  char32_t next() {
    check(more(), "it ends too early");
    return text_[at_++];
  }

  std::vector<RegexSequence> alternatives(bool fold) {
    constexpr int kDeepest = 100;
    check(++depth_ <= kDeepest, "it nests deeper than {} groups", kDeepest);
    std::vector<RegexSequence> result(1);
    while (more() && peek() != ')') {
      if (take(U"|")) {
        result.emplace_back();
      } else if (take(U"(?i)")) {
        fold = true;
      } else {
        RegexNode node = atom(fold);
        quantify(node);
        result.back().push_back(std::move(node));
      }
    }
    --depth_;
    return result;
  }

  RegexNode group(bool fold) {
    RegexNode node{.kind = Kind::group};
    if (take(U"?:")) {
    } else if (take(U"?i:")) {
      fold = true;
    } else if (take(U"?-i:")) {
      fold = false;
    } else if (take(U"?>")) {
      node.kind = Kind::atomic;
    } else if (take(U"?=") || sees(U"?!")) {
      node.kind = Kind::ahead;
      node.negative = take(U"?!");
    } else if (take(U"?<=") || sees(U"?<!")) {
      node.kind = Kind::behind;
      node.negative = take(U"?<!");
    } else if (take(U"?<")) {
      while (next() != '>') {
      }
    } else {
      check(peek() != '?',
            "this kind of group is not built; groups are (), (?:), (?i:), (?>) and looks around");
    }
    node.alternatives = alternatives(fold);
    check(take(U")"), "a group has no end");
    return node;
  }

  RegexNode atom(bool fold) {
    const char32_t c = next();
    switch (c) {
      case '(':
        return group(fold);
      case '[':
        return set_node(char_class(), fold);
      case '.':
        return set_node(CharSet::of('\n').complement(), false);
      case '^':
        return {.kind = Kind::line_begin};
      case '$':
        return {.kind = Kind::line_end};
      case '\\':
        return escape(fold);
      case '*':
      case '+':
      case '?':
        --at_;
        check(false, "there is nothing to repeat");
        [[fallthrough]];
      default:
        return set_node(CharSet::of(c), fold);
    }
  }

  static RegexNode set_node(const CharSet& set, bool fold) {
    return {.kind = Kind::set, .set = fold ? set.fold_case() : set};
  }

  RegexNode escape(bool fold) {
    switch (peek()) {
      case 'A':
        ++at_;
        return {.kind = Kind::text_begin};
      case 'z':
        ++at_;
        return {.kind = Kind::text_end};
      case 'Z':
        ++at_;
        return {.kind = Kind::last_line_end};
      case 'b':
        ++at_;
        return {.kind = Kind::word_edge};
      case 'B':
        ++at_;
        return {.kind = Kind::word_edge, .negative = true};
      default:
        return set_node(escaped(), fold);
    }
  }

  /// Behind a backslash, in a class or outside.
  CharSet escaped() {
    const char32_t c = next();
    if (const auto set = escaped_set(c)) {
      return *set;
    }
    switch (c) {
      case 'p':
      case 'P':
        return braced_property(c == 'P');
      case 'x':
        return CharSet::of(take(U"{") ? braced_number() : number(2));
      case 'u':
        return CharSet::of(number(4));
      case 'n':
        return CharSet::of('\n');
      case 'r':
        return CharSet::of('\r');
      case 't':
        return CharSet::of('\t');
      case 'f':
        return CharSet::of('\f');
      case 'v':
        return CharSet::of('\v');
      case 'a':
        return CharSet::of('\a');
      case 'e':
        return CharSet::of(0x1B);
      default:
        check(!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')),
              "\\{} is not built", to_ascii({&c, 1}));
        return CharSet::of(c);
    }
  }

  CharSet braced_property(bool complement) {
    check(take(U"{"), "expected {{ behind \\p");
    const std::size_t end = text_.find('}', at_);
    check(end != std::u32string::npos, "\\p{{ has no end");
    const std::string name = to_ascii(std::u32string_view(text_).substr(at_, end - at_));
    at_ = end + 1;
    const CharSet set =
        name == "Word" || name == "word" ? word_characters() : CharSet::property(name, where_);
    return complement ? set.complement() : set;
  }

  char32_t number(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      value = value * 16 + digit(next());
    }
    return value;
  }

  char32_t braced_number() {
    char32_t value = 0;
    while (!take(U"}")) {
      value = value * 16 + digit(next());
      check(value <= 0x10FFFF, "there is no such character");
    }
    return value;
  }

  char32_t digit(char32_t c) const {
    check(c < 0x80 && std::isxdigit(static_cast<int>(c)) != 0, "expected a hexadecimal digit");
    return c <= '9' ? c - '0' : (c | 0x20U) - 'a' + 10;
  }

  /// Behind '['. Classes nest and intersect.
  CharSet char_class() {
    constexpr int kDeepest = 100;
    check(++depth_ <= kDeepest, "it nests deeper than {} classes", kDeepest);
    const bool negative = take(U"^");
    std::optional<CharSet> so_far;  // of the operands of && before
    CharSet set;
    bool first = true;
    while (first || peek() != ']') {
      check(more(), "a character class has no end");
      if (take(U"&&")) {
        so_far = so_far ? so_far->intersect(set) : set;
        set = {};
      } else {
        set = set.unite(class_item());
      }
      first = false;
    }
    ++at_;
    --depth_;
    const CharSet all = so_far ? so_far->intersect(set) : set;
    return negative ? all.complement() : all;
  }

  CharSet class_item() {
    if (take(U"[:")) {
      const bool negative = take(U"^");
      const std::size_t end = text_.find(U":]", at_);
      check(end != std::u32string::npos, "[: has no end");
      const auto set = posix_set(to_ascii(std::u32string_view(text_).substr(at_, end - at_)));
      check(set.has_value(), "no class of this name is built");
      at_ = end + 2;
      return negative ? set->complement() : *set;
    }
    if (take(U"[")) {
      return char_class();
    }
    const CharSet low = take(U"\\") ? escaped() : CharSet::of(next());
    if (!is_range() || low.ranges().size() != 1 || low.ranges()[0].first != low.ranges()[0].last) {
      return low;
    }
    ++at_;
    const CharSet high = take(U"\\") ? escaped() : CharSet::of(next());
    check(high.ranges().size() == 1 && high.ranges()[0].first == high.ranges()[0].last &&
              high.ranges()[0].first >= low.ranges()[0].first,
          "a range of characters ends before it begins");
    return CharSet({{low.ranges()[0].first, high.ranges()[0].first}});
  }

  /// Whether '-' and the end of a range follow.
  [[nodiscard]] bool is_range() const {
    return peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']' && text_[at_ + 1] != '[' &&
           !std::u32string_view(text_).substr(at_ + 1).starts_with(U"&&");
  }

  void quantify(RegexNode& node) {
    bool braces = false;
    if (take(U"*")) {
      node.min = 0;
      node.max = -1;
    } else if (take(U"+")) {
      node.max = -1;
    } else if (take(U"?")) {
      node.min = 0;
    } else if (!(braces = take_counts(node))) {
      return;
    }
    if (take(U"?")) {
      node.repeat = Repeat::lazy;
    } else if (!braces && take(U"+")) {
      node.repeat = Repeat::possessive;
    }
    // Ruby repeats what is repeated.
    if (sees(U"*") || sees(U"+") || sees(U"?") || (sees(U"{") && looks_like_counts())) {
      RegexNode outer{.kind = Kind::group};
      outer.alternatives = {{std::move(node)}};
      node = std::move(outer);
      quantify(node);
    }
  }

  [[nodiscard]] bool looks_like_counts() {
    const std::size_t before = at_;
    RegexNode ignored;
    const bool result = take_counts(ignored);
    at_ = before;
    return result;
  }

  /// {n}, {n,}, {n,m}, {,m}; anything else behind a brace is literal.
  bool take_counts(RegexNode& node) {
    const std::size_t before = at_;
    if (!take(U"{")) {
      return false;
    }
    const std::optional<int> low = count();
    const bool comma = take(U",");
    const std::optional<int> high = comma ? count() : low;
    if (!take(U"}") || (!low && !high)) {
      at_ = before;
      return false;
    }
    node.min = low.value_or(0);
    node.max = high.value_or(-1);
    check(node.max < 0 || node.max >= node.min, "{{{},{}}} counts down", node.min, node.max);
    return true;
  }

  std::optional<int> count() {
    constexpr int kMost = 10'000;
    std::optional<int> value;
    while (peek() >= '0' && peek() <= '9') {
      value = value.value_or(0) * 10 + static_cast<int>(next() - '0');
      check(*value <= kMost, "it counts further than {}", kMost);
    }
    return value;
  }

  std::u32string text_;
  std::string pattern_;
  std::string where_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

std::string pcre2_set(const CharSet& set) {
  // Surrogates are not characters, and PCRE2 refuses them by name.
  const CharSet characters = set.intersect(CharSet({{0xD800, 0xDFFF}}).complement());
  if (characters.empty()) {
    return "(*FAIL)";
  }
  std::string text = "[";
  for (const CharRange& range : characters.ranges()) {
    text += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", std::uint32_t{range.first}, std::uint32_t{range.last});
  }
  return text + "]";
}

std::string pcre2_group(const std::vector<RegexSequence>& alternatives, std::string_view head) {
  return fmt::format("({}{})", head, to_pcre2(alternatives));
}

std::string pcre2_atom(const RegexNode& node) {
  switch (node.kind) {
    case Kind::set:
      return pcre2_set(node.set);
    case Kind::group:
      return pcre2_group(node.alternatives, "?:");
    case Kind::atomic:
      return pcre2_group(node.alternatives, "?>");
    case Kind::ahead:
      return pcre2_group(node.alternatives, node.negative ? "?!" : "?=");
    case Kind::behind:
      return pcre2_group(node.alternatives, node.negative ? "?<!" : "?<=");
    case Kind::text_begin:
      return "\\A";
    case Kind::text_end:
      return "\\z";
    case Kind::last_line_end:
      return "(?=\\n?\\z)";
    case Kind::line_begin:
      return "(?:\\A|(?<=\\n))";
    case Kind::line_end:
      return "(?:(?=\\n)|\\z)";
    case Kind::word_edge:
      break;
  }
  const std::string word = pcre2_set(word_characters());
  return node.negative ? fmt::format("(?:(?<!{0})(?!{0})|(?<={0})(?={0}))", word)
                       : fmt::format("(?:(?<!{0})(?={0})|(?<={0})(?!{0}))", word);
}

}  // namespace

const CharSet& word_characters() {
  static const CharSet set =
      property("Alphabetic").unite(property("M")).unite(property("Nd")).unite(property("Pc"));
  return set;
}

std::vector<RegexSequence> parse_regex(std::string_view pattern, const std::string& where) {
  require(find_invalid(pattern) == pattern.size(), "{}: the regular expression is not UTF-8", where);
  return Parser(pattern, where).parse();
}

std::string to_pcre2(const std::vector<RegexSequence>& alternatives) {
  std::string text;
  for (std::size_t i = 0; i < alternatives.size(); ++i) {
    text += i > 0 ? "|" : "";
    for (const RegexNode& node : alternatives[i]) {
      text += pcre2_atom(node);
      if (node.min != 1 || node.max != 1) {
        text +=
            node.max < 0 ? fmt::format("{{{},}}", node.min) : fmt::format("{{{},{}}}", node.min, node.max);
        text += node.repeat == Repeat::lazy ? "?" : node.repeat == Repeat::possessive ? "+" : "";
      }
    }
  }
  return text;
}

}  // namespace expedite::text
