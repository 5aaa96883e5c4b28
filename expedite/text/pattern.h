// Finding a pattern in text: a fixed string, or a regular expression.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace expedite::text {

struct Match {
  std::size_t begin = 0;
  std::size_t end = 0;
};

class Pattern {
 public:
  virtual ~Pattern() = default;
  Pattern() = default;
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  /// The first match of at least one byte that begins at `from` or later; looks behind see what is before.
  /// `text` is valid UTF-8. Safe from several threads. Throws Error where a regular expression gives up.
  [[nodiscard]] virtual std::optional<Match> find(std::string_view text, std::size_t from) const = 0;
};

/// `literal` must not be empty.
[[nodiscard]] std::unique_ptr<Pattern> make_literal_pattern(const std::string& literal);

/// Oniguruma's syntax (regex_syntax.h). Expressions made of character sets, as those of all well-known
/// tokenizers are, are matched by class_matcher.h, others by PCRE2; both give the same. Throws Error that
/// begins with `where`.
[[nodiscard]] std::unique_ptr<Pattern> make_regex_pattern(const std::string& regex, const std::string& where);

/// Always PCRE2.
[[nodiscard]] std::unique_ptr<Pattern> make_pcre2_pattern(const std::string& regex, const std::string& where);

}  // namespace expedite::text
