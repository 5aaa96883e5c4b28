#include "bench/case_grammar.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "expedite/base/error.h"

namespace expedite::bench {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 31;

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find_first_of(separators);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words = split(line, " \t\r\n");
  std::erase(words, std::string_view());
  return words;
}

std::optional<std::int64_t> whole(std::string_view text, std::int64_t least) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool fits = error == std::errc() && end == text.data() + text.size();
  return fits && value >= least && value < kMost ? std::optional(value) : std::nullopt;
}

std::optional<std::vector<std::int64_t>> wholes(std::string_view text, std::string_view separator,
                                                std::int64_t least) {
  std::vector<std::int64_t> values;
  for (const std::string_view part : split(text, separator)) {
    const auto value = whole(part, least);
    if (!value) {
      return std::nullopt;
    }
    values.push_back(*value);
  }
  return values;
}

std::vector<std::string_view> names_of(const std::vector<DType>& types) {
  std::vector<std::string_view> names;
  for (const DType type : types) {
    names.push_back(name_of(type));
  }
  return names;
}

std::string key_form(const CaseKey& key) {
  return fmt::format("{}={}", key.name, key.list ? "N,N,..." : "N");
}

/// Everything that may stand behind the sizes.
std::string options_of(const CaseGrammar& grammar) {
  std::vector<std::string> forms;
  for (const CaseKey& key : grammar.keys) {
    forms.push_back(key_form(key));
  }
  for (const auto& group : grammar.flags) {
    forms.push_back(fmt::format("{}", fmt::join(group, " | ")));
  }
  return forms.empty() ? "nothing" : fmt::format("{}", fmt::join(forms, ", "));
}

/// Reads the words of one line from left to right.
class Reader {
 public:
  Reader(std::string_view line, std::span<const CaseGrammar> grammars)
      : grammars_(grammars), words_(words_of(line)) {}

  CaseText read() {
    read_kernel();
    read_direction();
    read_type();
    read_sizes();
    while (next_ < words_.size()) {
      read_option();
    }
    result_.text = fmt::format("{}", fmt::join(words_, " "));
    return result_;
  }

 private:
  /// The word under the finger; empty behind the last.
  [[nodiscard]] std::string_view word() const {
    return next_ < words_.size() ? words_[next_] : std::string_view();
  }

  [[noreturn]] void refuse(std::string_view legal) const {
    const std::string where = next_ < words_.size() ? fmt::format("'{}'", word()) : "the end of the line";
    const std::string_view example = result_.grammar != nullptr ? result_.grammar->example
                                     : grammars_.empty()        ? std::string_view()
                                                                : grammars_.front().example;
    fail("case '{}': {} where {} is expected; an example: {}", fmt::join(words_, " "), where, legal, example);
  }

  void read_kernel() {
    const auto found = std::ranges::find(grammars_, word(), &CaseGrammar::kernel);
    if (found == grammars_.end()) {
      std::vector<std::string_view> kernels;
      for (const CaseGrammar& grammar : grammars_) {
        kernels.push_back(grammar.kernel);
      }
      refuse(fmt::format("a kernel ({})", fmt::join(kernels, ", ")));
    }
    result_.grammar = &*found;
    ++next_;
  }

  void read_direction() {
    const auto& legal = result_.grammar->directions;
    if (legal.empty()) {
      return;
    }
    const auto found = std::ranges::find(legal, word());
    result_.direction = found == legal.end() ? legal.front() : *found;
    next_ += found == legal.end() ? 0 : 1;
  }

  void read_type() {
    const auto& legal = result_.grammar->dtypes;
    const auto found = std::ranges::find_if(legal, [&](DType type) { return name_of(type) == word(); });
    if (found == legal.end()) {
      const bool direction_said =
          next_ > 1 || result_.grammar->directions.empty();  // else the word may have been meant as one
      const std::string types = fmt::format("a type ({})", fmt::join(names_of(legal), ", "));
      refuse(direction_said ? types
                            : fmt::format("a direction ({}) or {}",
                                          fmt::join(result_.grammar->directions, ", "), types));
    }
    result_.dtype = *found;
    ++next_;
  }

  void read_sizes() {
    const std::string_view form = result_.grammar->sizes;
    const auto sizes = wholes(word(), "x", 0);
    if (!sizes || sizes->size() != split(form, "x").size()) {
      refuse(fmt::format("sizes {} (whole numbers below 2^31)", form));
    }
    result_.sizes = *sizes;
    ++next_;
  }

  void read_option() {
    const std::size_t equals = word().find('=');
    if (equals == std::string_view::npos) {
      read_flag();
    } else {
      read_key(word().substr(0, equals), word().substr(equals + 1));
    }
    ++next_;
  }

  void read_key(std::string_view name, std::string_view value) {
    const auto& legal = result_.grammar->keys;
    const auto key = std::ranges::find(legal, name, &CaseKey::name);
    if (key == legal.end()) {
      refuse(options_of(*result_.grammar));
    }
    const auto values = wholes(value, key->list ? "," : "=", key->least);
    if (!values || (!key->list && values->size() != 1)) {
      refuse(fmt::format("{} with whole numbers from {} on", key_form(*key), key->least));
    }
    if (!result_.keys.emplace(key->name, *values).second) {
      refuse(fmt::format("{} once", key_form(*key)));
    }
  }

  void read_flag() {
    for (const auto& group : result_.grammar->flags) {
      const auto found = std::ranges::find(group, word());
      if (found == group.end()) {
        continue;
      }
      const auto said = [&](std::string_view flag) { return std::ranges::count(result_.flags, flag) > 0; };
      if (std::ranges::any_of(group, said)) {
        refuse(fmt::format("one of {}, once,", fmt::join(group, " | ")));
      }
      result_.flags.push_back(*found);
      return;
    }
    refuse(options_of(*result_.grammar));
  }

  std::span<const CaseGrammar> grammars_;
  std::vector<std::string_view> words_;
  std::size_t next_ = 0;
  CaseText result_;
};

}  // namespace

bool CaseText::is(std::string_view word) const {
  return direction == word || std::ranges::count(flags, word) > 0;
}

std::int64_t CaseText::number(std::string_view key) const {
  const auto said = keys.find(key);
  if (said != keys.end()) {
    return said->second.front();
  }
  const auto known = std::ranges::find(grammar->keys, key, &CaseKey::name);
  require(known != grammar->keys.end(), "{} has no key {}", grammar->kernel, key);
  return known->standard;
}

std::vector<std::int64_t> CaseText::list(std::string_view key) const {
  const auto said = keys.find(key);
  return said == keys.end() ? std::vector<std::int64_t>() : said->second;
}

CaseText parse_case(std::string_view line, std::span<const CaseGrammar> grammars) {
  return Reader(line, grammars).read();
}

std::string describe(const CaseGrammar& grammar) {
  std::string text(grammar.kernel);
  if (!grammar.directions.empty()) {
    text += fmt::format(" [{}]", fmt::join(grammar.directions, " | "));
  }
  text += fmt::format(" {} {}", fmt::join(names_of(grammar.dtypes), "|"), grammar.sizes);
  for (const CaseKey& key : grammar.keys) {
    text += fmt::format(" [{}]", key_form(key));
  }
  for (const auto& group : grammar.flags) {
    text += fmt::format(" [{}]", fmt::join(group, " | "));
  }
  for (const CaseKey& key : grammar.keys) {
    const std::string standard = key.list || key.standard == 0 ? "" : fmt::format(" ({})", key.standard);
    text += fmt::format("\n    {:<12} {}{}", key.name, key.meaning, standard);
  }
  return text + fmt::format("\n    for example  {}\n", grammar.example);
}

}  // namespace expedite::bench
