// Added and special tokens: found in text before anything else is done to it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace expedite::text {

struct AddedToken {
  std::string content;
  std::int32_t id = -1;
  bool special = false;
  bool single_word = false;  // not beside a letter or digit
  bool lstrip = false;       // with the white space before it
  bool rstrip = false;       // with the white space after it
  bool normalized = false;   // looked for in normalised text
};

struct FoundToken {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::int32_t id = -1;
};

/// Finds the leftmost, and of those the longest.
class AddedTokenFinder {
 public:
  /// Contents that are empty are left out.
  explicit AddedTokenFinder(const std::vector<AddedToken>& tokens);
  ~AddedTokenFinder();
  AddedTokenFinder(AddedTokenFinder&&) noexcept;
  AddedTokenFinder& operator=(AddedTokenFinder&&) noexcept;

  /// The first one that begins at `from` or later, its white space included; none of it lies before `from`.
  [[nodiscard]] std::optional<FoundToken> find(std::string_view text, std::size_t from) const;

 private:
  struct Index;
  std::unique_ptr<Index> index_;
};

}  // namespace expedite::text
