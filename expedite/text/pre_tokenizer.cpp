#include "expedite/text/pre_tokenizer.h"

#include <array>

#include "expedite/base/config_fields.h"
#include "expedite/base/error.h"
#include "expedite/base/text.h"
#include "expedite/text/json_fields.h"

namespace expedite::text {
namespace {

using nlohmann::json;

class NoSplit final : public PreTokenizer {
 public:
  void split(Pieces&) const override {}
};

class SplitSequence final : public PreTokenizer {
 public:
  explicit SplitSequence(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}
  void split(Pieces& pieces) const override {
    for (const auto& part : parts_) {
      part->split(pieces);
    }
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

/// What becomes of matches.
enum class Behavior : std::uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };

constexpr std::array<std::string_view, 5> kBehaviors = {"Isolated", "Removed", "MergedWithPrevious",
                                                        "MergedWithNext", "Contiguous"};

class Split final : public PreTokenizer {
 public:
  /// `invert`: what lies between matches is the match.
  Split(std::unique_ptr<Pattern> pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void split(Pieces& pieces) const override {
    pieces.made.clear();
    for (const Span& span : pieces.spans) {
      split_one(pieces.at(span), span.begin, pieces.made);
    }
    pieces.spans.swap(pieces.made);
  }

 private:
  void split_one(std::string_view text, std::uint32_t offset, std::vector<Span>& out) const {
    if (behavior_ == Behavior::isolated) {
      isolate(text, offset, out);
      return;
    }
    Merger merger{behavior_, out, out.size()};
    std::size_t at = 0;
    const auto add = [&](std::size_t end, bool is_match) {
      if (end > at) {
        merger.add({static_cast<std::uint32_t>(offset + at), static_cast<std::uint32_t>(offset + end)},
                   is_match != invert_);
      }
      at = end;
    };
    while (const std::optional<Match> match = pattern_->find(text, at)) {
      add(match->begin, false);
      add(match->end, true);
    }
    add(text.size(), false);
  }

  void isolate(std::string_view text, std::uint32_t offset, std::vector<Span>& out) const {
    std::size_t at = 0;
    const auto add = [&](std::size_t end) {
      if (end > at) {
        out.push_back({static_cast<std::uint32_t>(offset + at), static_cast<std::uint32_t>(offset + end)});
      }
      at = end;
    };
    while (const std::optional<Match> match = pattern_->find(text, at)) {
      add(match->begin);
      add(match->end);
    }
    add(text.size());
  }

  /// Takes matches and what lies between them, in order.
  struct Merger {
    Behavior behavior;
    std::vector<Span>& out;
    std::size_t first;         // of this text in `out`
    bool after_match = false;  // the last one was one
    bool waiting = false;      // the last of `out` is a match that the next one joins

    void add(Span span, bool is_match) {
      const bool any = out.size() > first;
      switch (behavior) {
        case Behavior::isolated:
          out.push_back(span);
          break;
        case Behavior::removed:
          if (!is_match) {
            out.push_back(span);
          }
          break;
        case Behavior::merged_with_previous:
          join_if(any && is_match && !after_match, span);
          break;
        case Behavior::merged_with_next:
          // Of matches one after another only the last joins what follows.
          join_if(any && waiting && !is_match, span);
          waiting = is_match;
          break;
        case Behavior::contiguous:
          join_if(any && is_match == after_match, span);
          break;
      }
      after_match = is_match;
    }

    void join_if(bool join, Span span) const {
      if (join) {
        out.back().end = span.end;
      } else {
        out.push_back(span);
      }
    }
  };

  std::unique_ptr<Pattern> pattern_;
  Behavior behavior_;
  bool invert_;
};

/// Puts `prefix` before each piece that `wants` it.
template <typename Wants>
void prepend(Pieces& pieces, std::string_view prefix, const Wants& wants) {
  Rewriter writer(pieces.text);
  std::uint32_t added = 0;
  for (std::size_t i = 0; i < pieces.spans.size(); ++i) {
    Span& span = pieces.spans[i];
    const bool here = wants(i, pieces.at(span));
    writer.copy_until(span.begin);
    writer.replace_until(span.begin, here ? prefix : std::string_view());
    writer.copy_until(span.end);
    span.begin += added;
    added += here ? static_cast<std::uint32_t>(prefix.size()) : 0;
    span.end += added;
  }
  pieces.text = std::move(writer).take();
}

class PrefixSpace final : public PreTokenizer {
 public:
  void split(Pieces& pieces) const override {
    prepend(pieces, " ", [](std::size_t, std::string_view piece) { return !piece.starts_with(' '); });
  }
};

enum class PrependScheme : std::uint8_t { never, first, always };

/// A visible character in place of spaces, and before the first word.
class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme)
      : replacement_(std::move(replacement)), scheme_(scheme) {}

  void split(Pieces& pieces) const override {
    replace_spaces(pieces);
    if (scheme_ != PrependScheme::never) {
      prepend(pieces, replacement_, [&](std::size_t index, std::string_view piece) {
        return !piece.starts_with(replacement_) &&
               (scheme_ == PrependScheme::always || (index == 0 && pieces.begins_text));
      });
    }
  }

 private:
  void replace_spaces(Pieces& pieces) const {
    Rewriter writer(pieces.text);
    const std::string_view text = pieces.text.bytes;
    std::size_t done = 0;    // of the old text
    std::size_t length = 0;  // of the new one
    const auto go_to = [&](std::size_t end) {
      for (std::size_t space = text.find(' ', done); space < end; space = text.find(' ', done)) {
        writer.copy_until(space);
        writer.replace_until(space + 1, replacement_);
        length += space - done + replacement_.size();
        done = space + 1;
      }
      writer.copy_until(end);
      length += end - done;
      done = end;
      return static_cast<std::uint32_t>(length);
    };
    for (Span& span : pieces.spans) {
      const std::uint32_t begin = go_to(span.begin);
      span = {begin, go_to(span.end)};
    }
    pieces.text = std::move(writer).take();
  }

  std::string replacement_;
  PrependScheme scheme_;
};

// ---- From JSON

constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Behavior behavior_of(const ConfigFields& fields, std::string_view default_value) {
  const std::string name = fields.text("behavior", default_value);
  for (std::size_t i = 0; i < kBehaviors.size(); ++i) {
    if (name == kBehaviors[i]) {
      return static_cast<Behavior>(i);
    }
  }
  fail("{}: behavior is {}, not {}", fields.where(), name,
       join_choices(std::vector<std::string>(kBehaviors.begin(), kBehaviors.end())));
}

std::unique_ptr<PreTokenizer> split_by(const std::string& regex, Behavior behavior, bool invert,
                                       const std::string& where) {
  return std::make_unique<Split>(make_regex_pattern(regex, where), behavior, invert);
}

PrependScheme scheme_of(const ConfigFields& fields) {
  // Older files say add_prefix_space: true or false.
  const std::string scheme =
      fields.text("prepend_scheme", fields.boolean("add_prefix_space", true) ? "always" : "never");
  require(scheme == "always" || scheme == "first" || scheme == "never",
          "{}: prepend_scheme is {}, not always, first or never", fields.where(), scheme);
  return scheme == "always"  ? PrependScheme::always
         : scheme == "first" ? PrependScheme::first
                             : PrependScheme::never;
}

/// Parts in order; ByteLevel comes last.
class Builder {
 public:
  void add(const json& value, const std::string& where) {
    require(!byte_level_, "{}: comes after ByteLevel, which is read as the last pre_tokenizer only", where);
    const ConfigFields fields(value, where);
    const std::string type = fields.text("type", "");
    if (type == "Sequence") {
      for (const auto& [name, part] : parts_of(fields, "pretokenizers")) {
        add(part, name);
      }
    } else if (type == "ByteLevel") {
      add_byte_level(fields);
    } else if (type == "Metaspace") {
      add_metaspace(fields);
    } else if (type == "Split") {
      parts_.push_back(std::make_unique<Split>(pattern_of(fields), behavior_of(fields, "Isolated"),
                                               fields.boolean("invert", false)));
    } else {
      add_simple(type, fields, excerpt(value.value("type", json())));
    }
  }

  [[nodiscard]] PreTokenization take() {
    if (parts_.empty()) {
      return {std::make_unique<NoSplit>(), byte_level_};
    }
    return {std::make_unique<SplitSequence>(std::move(parts_)), byte_level_};
  }

 private:
  void add_byte_level(const ConfigFields& fields) {
    byte_level_ = true;
    if (fields.boolean("add_prefix_space", true)) {
      parts_.push_back(std::make_unique<PrefixSpace>());
    }
    if (fields.boolean("use_regex", true)) {
      parts_.push_back(split_by(kGpt2, Behavior::isolated, false, fields.where()));
    }
  }

  void add_metaspace(const ConfigFields& fields) {
    const std::string replacement = fields.text("replacement", "\xE2\x96\x81");
    require(!replacement.empty(), "{}: replacement is empty", fields.where());
    parts_.push_back(std::make_unique<Metaspace>(replacement, scheme_of(fields)));
    if (fields.boolean("split", true)) {
      parts_.push_back(
          std::make_unique<Split>(make_literal_pattern(replacement), Behavior::merged_with_next, false));
    }
  }

  void add_simple(const std::string& type, const ConfigFields& fields, const Excerpt& shown) {
    const std::string& where = fields.where();
    if (type == "Digits") {
      const bool each = fields.boolean("individual_digits", false);
      parts_.push_back(split_by("\\p{N}", each ? Behavior::isolated : Behavior::contiguous, false, where));
    } else if (type == "Punctuation") {
      parts_.push_back(split_by("[\\p{P}!-/:-@\\[-`{-~]", behavior_of(fields, "Isolated"), false, where));
    } else if (type == "Whitespace") {
      // \w of the regex crate of Rust has the two joiners too.
      parts_.push_back(
          split_by("[\\w\\u200C\\u200D]+|[^\\w\\u200C\\u200D\\s]+", Behavior::removed, true, where));
    } else if (type == "WhitespaceSplit") {
      parts_.push_back(split_by("\\s", Behavior::removed, false, where));
    } else if (type == "CharDelimiterSplit") {
      const std::string delimiter = fields.text("delimiter", "");
      require(!delimiter.empty(), "{}: delimiter is missing", where);
      parts_.push_back(std::make_unique<Split>(make_literal_pattern(delimiter), Behavior::removed, false));
    } else {
      fail(
          "{}: the type {} is not read; pre_tokenizers that are: ByteLevel, Split, Digits, Punctuation, "
          "Whitespace, WhitespaceSplit, CharDelimiterSplit, Metaspace and Sequence",
          where, shown);
    }
  }

  std::vector<std::unique_ptr<PreTokenizer>> parts_;
  bool byte_level_ = false;
};

}  // namespace

PreTokenization make_pre_tokenizer(const json& value, const std::string& where) {
  Builder builder;
  if (!value.is_null()) {
    builder.add(value, where);
  }
  return builder.take();
}

}  // namespace expedite::text
