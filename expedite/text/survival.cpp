#include "expedite/text/survival.h"

#include <fmt/format.h>

#include <algorithm>

#include "expedite/text/utf8.h"

namespace expedite::text {
namespace {

constexpr std::size_t kShown = 40;  // bytes of an example

/// What a token says where it stands.
std::string_view said(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens, std::size_t i) {
  std::string_view text = tokenizer.says(tokens[i]);
  if (i == 0 && tokenizer.adds_space() && text.starts_with(' ')) {
    text.remove_prefix(1);
  }
  return text;
}

/// Characters; a byte that is part of none is one by itself.
std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  while (!text.empty()) {
    const std::size_t length = std::min(character_length(text[0]), text.size());
    const std::size_t taken = find_invalid(text.substr(0, length)) == length ? length : 1;
    characters.push_back(text.substr(0, taken));
    text.remove_prefix(taken);
  }
  return characters;
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

/// Bytes of the longest common subsequence of characters.
std::size_t common_bytes(std::string_view text, std::string_view said) {
  const auto a = characters_of(text);
  const auto b = characters_of(said);
  constexpr std::size_t kMostPairs = 4'000'000;
  if (a.size() * b.size() > kMostPairs) {  // then what both begin and end with
    const std::size_t prefix = common_prefix(text, said);
    std::size_t suffix = 0;
    while (suffix < std::min(text.size(), said.size()) - prefix &&
           text[text.size() - 1 - suffix] == said[said.size() - 1 - suffix]) {
      ++suffix;
    }
    return prefix + suffix;
  }
  std::vector<std::size_t> row(b.size() + 1, 0);
  for (const std::string_view character : a) {
    std::size_t diagonal = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t above = row[j + 1];
      row[j + 1] = character == b[j] ? diagonal + character.size() : std::max(above, row[j]);
      diagonal = above;
    }
  }
  return row.back();
}

/// Tokens that are compared together, because the bytes of one alone are not known exactly.
class Group {
 public:
  Group(std::string_view text, std::span<std::uint32_t> token_bytes, TextLoss& loss)
      : text_(text), token_bytes_(token_bytes), loss_(loss) {}

  void add(std::size_t token, std::string_view said) {
    last_ = token;
    end_ += token_bytes_[token];
    said_ += said;
    if (said_ == text_.substr(begin_, end_ - begin_)) {
      begin_ = end_;
      said_.clear();
      first_ = last_ + 1;
    }
  }

  /// Counts what is lost in the tokens that do not fit, if any; the last of them keeps what survives.
  void close() {
    const std::string_view original = text_.substr(begin_, end_ - begin_);
    const std::size_t survives = common_bytes(original, said_);
    const auto lost = static_cast<std::int64_t>(original.size() - survives);
    if (lost > 0) {
      if (loss_.bytes == 0) {
        const std::size_t same = common_prefix(original, said_);
        loss_.first_offset = static_cast<std::int64_t>(begin_ + same);
        loss_.original = original.substr(same, kShown);
        loss_.reads_back = said_.substr(same, kShown);
      }
      loss_.bytes += lost;
      std::fill(token_bytes_.begin() + static_cast<std::ptrdiff_t>(first_),
                token_bytes_.begin() + static_cast<std::ptrdiff_t>(last_) + 1, 0U);
      token_bytes_[last_] = static_cast<std::uint32_t>(survives);
    }
    begin_ = end_;
    said_.clear();
    first_ = last_ + 1;
  }

  [[nodiscard]] bool open() const { return first_ <= last_ && (begin_ < end_ || !said_.empty()); }
  [[nodiscard]] std::size_t end() const { return end_; }

 private:
  std::string_view text_;
  std::span<std::uint32_t> token_bytes_;
  TextLoss& loss_;
  std::size_t first_ = 0;  // token
  std::size_t last_ = 0;
  std::size_t begin_ = 0;  // in the text
  std::size_t end_ = 0;
  std::string said_;
};

}  // namespace

std::string quoted(std::string_view text) {
  std::string result = "'";
  for (const std::string_view character : characters_of(text)) {
    const auto byte = static_cast<unsigned char>(character[0]);
    if (character == "\n") {
      result += "\\n";
    } else if (character.size() == 1 && (byte < ' ' || byte >= 0x7FU)) {
      result += fmt::format("\\x{:02X}", byte);
    } else {
      result += character;
    }
  }
  return result + "'";
}

bool says_all(std::string_view text, std::span<const std::int32_t> tokens, const Tokenizer& tokenizer) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view part = said(tokenizer, tokens, i);
    if (!text.starts_with(part)) {
      return false;
    }
    text.remove_prefix(part.size());
  }
  return text.empty();
}

TextLoss find_loss(std::string_view text, std::span<const std::int32_t> tokens,
                   std::span<std::uint32_t> token_bytes, const Tokenizer& tokenizer) {
  TextLoss loss;
  if (tokens.empty()) {
    loss.bytes = static_cast<std::int64_t>(text.size());
    loss.original = text.substr(0, kShown);
    return loss;
  }
  Group group(text, token_bytes, loss);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view part = said(tokenizer, tokens, i);
    // A token that says its own bytes shows where the one before it ended.
    if (group.open() && !part.empty() && part == text.substr(group.end(), token_bytes[i])) {
      group.close();
    }
    group.add(i, part);
  }
  if (group.open()) {
    group.close();
  }
  return loss;
}

}  // namespace expedite::text
