// Regular expressions of tokenizer.json, which are Oniguruma's (Ruby syntax), as trees.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "expedite/text/char_set.h"

namespace expedite::text {

struct RegexNode;
using RegexSequence = std::vector<RegexNode>;

/// One item of a sequence, `min` to `max` times (max < 0: no limit).
struct RegexNode {
  enum class Kind {
    set,            // one character of `set`
    group,          // one of `alternatives`, the first that lets the rest match
    atomic,         // the first of `alternatives` that matches, come what may
    ahead,          // a look at what follows
    behind,         // a look at what goes before
    text_begin,     // \A
    text_end,       // \z
    last_line_end,  // \Z
    line_begin,     // ^
    line_end,       // $
    word_edge,      // \b; `negative`: \B
  };
  enum class Repeat { greedy, lazy, possessive };

  Kind kind = Kind::set;
  CharSet set = {};
  std::vector<RegexSequence> alternatives = {};
  bool negative = false;
  int min = 1;
  int max = 1;
  Repeat repeat = Repeat::greedy;
};

/// Alternatives of the whole expression. Everything that tokenizers use and nothing that refers to what was
/// matched before: no back references, no conditions, no calls. Properties and \s, \d, \w are Unicode's.
/// (?i:) folds ASCII letters among themselves, as @huggingface/tokenizers does. Throws Error that begins with
/// `where` and names the place.
[[nodiscard]] std::vector<RegexSequence> parse_regex(std::string_view pattern, const std::string& where);

/// The same for PCRE2, in UTF mode.
[[nodiscard]] std::string to_pcre2(const std::vector<RegexSequence>& alternatives);

/// What \w stands for.
[[nodiscard]] const CharSet& word_characters();

}  // namespace expedite::text
