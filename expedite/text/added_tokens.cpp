#include "expedite/text/added_tokens.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <array>

#include "expedite/text/regex_syntax.h"
#include "expedite/text/utf8.h"

namespace expedite::text {
namespace {

bool is_space(char32_t character) {
  return u_isUWhiteSpace(static_cast<UChar32>(character)) != 0;
}

std::size_t character_before(std::string_view text, std::size_t at) {
  --at;
  while (continues_character(text[at])) {
    --at;
  }
  return at;
}

}  // namespace

/// Tokens sorted by content, in one range for each pair of bytes that they begin with.
struct AddedTokenFinder::Index {
  std::vector<AddedToken> tokens;
  std::array<bool, 256> begins = {};         // by first byte
  std::vector<std::uint32_t> of_first = {};  // 257 bounds of `tokens` by first byte
  std::size_t longest = 0;

  /// The longest token that the text has at `at`.
  [[nodiscard]] const AddedToken* at(std::string_view text, std::size_t at) const {
    const auto first = static_cast<unsigned char>(text[at]);
    const std::string_view rest = text.substr(at, longest);
    std::uint32_t low = of_first[first];
    std::uint32_t high = of_first[first + 1];
    const AddedToken* found = nullptr;
    // Narrow the range byte by byte: those in it begin with what the text has.
    for (std::size_t length = 1; low < high; ++length) {
      if (tokens[low].content.size() == length) {
        found = &tokens[low++];
      }
      if (length == rest.size()) {
        break;
      }
      const auto byte_of = [length](const AddedToken& token) {
        return static_cast<unsigned char>(token.content[length]);
      };
      const auto range = std::ranges::equal_range(tokens.begin() + low, tokens.begin() + high,
                                                  static_cast<unsigned char>(rest[length]), {}, byte_of);
      high = static_cast<std::uint32_t>(range.end() - tokens.begin());
      low = static_cast<std::uint32_t>(range.begin() - tokens.begin());
    }
    return found;
  }
};

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens)
    : index_(std::make_unique<Index>()) {
  Index& index = *index_;
  for (const AddedToken& token : tokens) {
    if (!token.content.empty()) {
      index.tokens.push_back(token);
      index.longest = std::max(index.longest, token.content.size());
      index.begins[static_cast<unsigned char>(token.content[0])] = true;
    }
  }
  // As bytes; of a content that is there twice the last one stays.
  std::ranges::stable_sort(index.tokens, {}, &AddedToken::content);
  std::vector<AddedToken> once;
  for (AddedToken& token : index.tokens) {
    if (!once.empty() && once.back().content == token.content) {
      once.back() = std::move(token);
    } else {
      once.push_back(std::move(token));
    }
  }
  index.tokens = std::move(once);
  index.of_first.assign(257, 0);
  for (const AddedToken& token : index.tokens) {
    ++index.of_first[static_cast<unsigned char>(token.content[0]) + 1];
  }
  for (std::size_t i = 1; i < index.of_first.size(); ++i) {
    index.of_first[i] += index.of_first[i - 1];
  }
}

AddedTokenFinder::~AddedTokenFinder() = default;
AddedTokenFinder::AddedTokenFinder(AddedTokenFinder&&) noexcept = default;
AddedTokenFinder& AddedTokenFinder::operator=(AddedTokenFinder&&) noexcept = default;

std::optional<FoundToken> AddedTokenFinder::find(std::string_view text, std::size_t from) const {
  if (index_->tokens.empty()) {
    return std::nullopt;
  }
  for (std::size_t at = from; at < text.size(); ++at) {
    if (!index_->begins[static_cast<unsigned char>(text[at])]) {
      continue;
    }
    const AddedToken* token = index_->at(text, at);
    if (token == nullptr) {
      continue;
    }
    FoundToken found{at, at + token->content.size(), token->id};
    const auto is_word = [](char32_t c) { return word_characters().holds(c); };
    if (token->single_word && ((at > 0 && is_word(character_at(&text[character_before(text, at)]))) ||
                               (found.end < text.size() && is_word(character_at(&text[found.end]))))) {
      at = found.end - 1;  // as Hugging Face does: none of it is looked at again
      continue;
    }
    while (token->lstrip && found.begin > from &&
           is_space(character_at(&text[character_before(text, found.begin)]))) {
      found.begin = character_before(text, found.begin);
    }
    while (token->rstrip && found.end < text.size() && is_space(character_at(&text[found.end]))) {
      found.end += character_length(text[found.end]);
    }
    return found;
  }
  return std::nullopt;
}

}  // namespace expedite::text
