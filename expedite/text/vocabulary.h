// Tokens by id, and ids by token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/text/huge_pages.h"

namespace expedite::text {

/// A hash table of strings that is filled once.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// Tokens and their ids. Of a token that is there twice the later id counts.
  explicit Vocabulary(std::vector<std::pair<std::string, std::int32_t>> tokens);

  /// -1 when there is no such token.
  [[nodiscard]] std::int32_t find(std::string_view token) const;
  [[nodiscard]] const std::vector<std::pair<std::string, std::int32_t>>& tokens() const { return tokens_; }
  /// The largest id plus one; 0 of an empty one.
  [[nodiscard]] std::int64_t size() const { return size_; }

 private:
  /// Index of tokens_ plus one, and some bits of the token's hash, so that most of what is not there is told
  /// without a look at a token.
  struct Slot {
    std::uint32_t index = 0;
    std::uint32_t tag = 0;
  };
  [[nodiscard]] std::size_t slot_of(std::string_view token) const;

  std::vector<std::pair<std::string, std::int32_t>> tokens_;
  Table<Slot> slots_;
  std::size_t longest_ = 0;
  std::int64_t size_ = 0;
};

}  // namespace expedite::text
