// A matcher for regular expressions that are made of character sets alone, several times as fast as a general
// one.
//
// The splits of well-known tokenizers are alternatives of a few sets of characters, each once or repeated,
// sometimes with an optional group or a look at the next character: '\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*'.
// Every set of such an expression has a bit, and a table has the bits of every character; so a character is
// looked up once, whatever its sets are.
#pragma once

#include <memory>
#include <vector>

#include "expedite/text/pattern.h"
#include "expedite/text/regex_syntax.h"

namespace expedite::text {

/// Nothing where the expression has more than sets, groups that are there once or optional, and looks ahead.
[[nodiscard]] std::unique_ptr<Pattern> make_class_matcher(const std::vector<RegexSequence>& alternatives);

}  // namespace expedite::text
