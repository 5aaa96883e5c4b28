#include "expedite/text/pattern.h"

#include "expedite/base/error.h"
#include "expedite/text/class_matcher.h"
#include "expedite/text/regex_syntax.h"
#include "expedite/text/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

namespace expedite::text {
namespace {

class LiteralPattern final : public Pattern {
 public:
  explicit LiteralPattern(std::string literal) : literal_(std::move(literal)) {}

  [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from) const override {
    const std::size_t at = text.find(literal_, from);
    return at == std::string_view::npos ? std::nullopt : std::optional(Match{at, at + literal_.size()});
  }

 private:
  std::string literal_;
};

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer = {};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

class Pcre2Pattern final : public Pattern {
 public:
  Pcre2Pattern(const std::string& regex, const std::string& where) : regex_(regex), where_(where) {
    const std::string translated = to_pcre2(parse_regex(regex, where));
    int error = 0;
    std::size_t offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                              nullptr));
    require(code_ != nullptr, "{}: PCRE2 cannot compile the regular expression {}: {}", where, regex,
            pcre2_message(error));
    // Without compilation to machine code, where the platform has none, it is slower and the same.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
  }

  [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from) const override {
    while (true) {
      const std::optional<Match> match = match_from(text, from);
      if (!match || match->end > match->begin) {
        return match;
      }
      if (match->begin == text.size()) {
        return std::nullopt;
      }
      from = match->begin + character_length(text[match->begin]);
    }
  }

 private:
  [[nodiscard]] std::optional<Match> match_from(std::string_view text, std::size_t from) const {
    thread_local const std::unique_ptr<pcre2_match_data, FreeMatch> data(pcre2_match_data_create(1, nullptr));
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    constexpr std::uint32_t kOptions = PCRE2_NO_UTF_CHECK;
    int count = pcre2_match(code_.get(), subject, text.size(), from, kOptions, data.get(), nullptr);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
      count =
          pcre2_match(code_.get(), subject, text.size(), from, kOptions | PCRE2_NO_JIT, data.get(), nullptr);
    }
    if (count == PCRE2_ERROR_NOMATCH) {
      return std::nullopt;
    }
    require(count >= 0, "{}: the regular expression {} gives up on a text of {} bytes: {}", where_, regex_,
            text.size(), pcre2_message(count));
    const std::size_t* found = pcre2_get_ovector_pointer(data.get());
    return Match{found[0], found[1]};
  }

  std::string regex_;
  std::string where_;
  std::unique_ptr<pcre2_code, FreeCode> code_;
};

}  // namespace

std::unique_ptr<Pattern> make_literal_pattern(const std::string& literal) {
  return std::make_unique<LiteralPattern>(literal);
}

std::unique_ptr<Pattern> make_pcre2_pattern(const std::string& regex, const std::string& where) {
  return std::make_unique<Pcre2Pattern>(regex, where);
}

std::unique_ptr<Pattern> make_regex_pattern(const std::string& regex, const std::string& where) {
  std::unique_ptr<Pattern> fast = make_class_matcher(parse_regex(regex, where));
  return fast != nullptr ? std::move(fast) : make_pcre2_pattern(regex, where);
}

}  // namespace expedite::text
