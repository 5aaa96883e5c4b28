// How a kernel and a shape are said in one line, "grouped_matmul weight_grad bf16 8192x1024x512 E=8 skewed",
// in the manner of oneDNN's benchdnn.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/tensor/dtype.h"

namespace expedite::bench {

/// `name=value`, where the value is a whole number from `least` on, or several with commas (`list`).
struct CaseKey {
  std::string_view name;
  std::int64_t least = 1;
  std::int64_t standard = 0;  // without the key; a list is then empty
  bool list = false;
  std::string_view meaning = {};
};

/// What may be said of one kernel: its name, a direction, a type, sizes, and then keys and flags in any
/// order.
struct CaseGrammar {
  std::string_view kernel;
  std::vector<std::string_view> directions;  // the first when none is said; empty: there are none
  std::vector<DType> dtypes;
  std::string_view sizes;  // "MxNxK": so many numbers, each 0 or more
  std::vector<CaseKey> keys;
  std::vector<std::vector<std::string_view>> flags;  // at most one word of each group; the first is meant
                                                     // without any, where a group has several
  std::string_view example;
};

/// A line that follows its kernel's grammar.
struct CaseText {
  const CaseGrammar* grammar = nullptr;
  std::string text;  // words, a space between them
  std::string_view direction;
  DType dtype = DType::f32;
  std::vector<std::int64_t> sizes;
  std::map<std::string_view, std::vector<std::int64_t>> keys;  // those said
  std::vector<std::string_view> flags;                         // those said

  [[nodiscard]] bool is(std::string_view word) const;  // the direction, or a flag that was said
  [[nodiscard]] bool has(std::string_view key) const { return keys.contains(key); }
  [[nodiscard]] std::int64_t number(std::string_view key) const;
  [[nodiscard]] std::vector<std::int64_t> list(std::string_view key) const;
};

/// Throws Error that names the word that does not fit, what is legal in its place, and an example. Whether
/// sizes fit each other is for the kernel to say. The grammars must outlive the result.
[[nodiscard]] CaseText parse_case(std::string_view line, std::span<const CaseGrammar> grammars);

/// What a grammar allows, in one line, and its example.
[[nodiscard]] std::string describe(const CaseGrammar& grammar);

}  // namespace expedite::bench
