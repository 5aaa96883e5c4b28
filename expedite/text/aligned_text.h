// A text that was changed, and where in the original each of its bytes comes from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace expedite::text {

/// `origin` is empty, or has bytes.size() + 1 entries: where in the original each byte, and the end, lies. It
/// never decreases. Bytes in place of others belong to the end of what they replace, but for the first.
struct AlignedText {
  std::string bytes;
  std::vector<std::uint32_t> origin;

  [[nodiscard]] bool aligned() const { return !origin.empty(); }
};

/// A text that is its own original.
[[nodiscard]] AlignedText as_original(std::string_view text, bool aligned);

/// Makes a new AlignedText from one by copying and replacing parts, from its beginning to its end.
class Rewriter {
 public:
  /// From an original. `text` must outlive the writer.
  Rewriter(std::string_view text, bool aligned) : in_(text), aligned_(aligned) {}
  explicit Rewriter(const AlignedText& text)
      : in_(text.bytes), origin_(text.aligned() ? &text.origin : nullptr), aligned_(text.aligned()) {}

  void copy_until(std::size_t end);
  void replace_until(std::size_t end, std::string_view with);
  [[nodiscard]] AlignedText take() &&;

 private:
  [[nodiscard]] std::uint32_t origin_of(std::size_t at) const {
    return origin_ == nullptr ? static_cast<std::uint32_t>(at) : (*origin_)[at];
  }

  std::string_view in_;
  const std::vector<std::uint32_t>* origin_ = nullptr;
  bool aligned_;
  std::size_t at_ = 0;
  AlignedText out_;
};

}  // namespace expedite::text
