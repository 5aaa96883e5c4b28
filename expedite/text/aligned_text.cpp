#include "expedite/text/aligned_text.h"

#include <numeric>

namespace expedite::text {

AlignedText as_original(std::string_view text, bool aligned) {
  AlignedText result{.bytes = std::string(text), .origin = {}};
  if (aligned) {
    result.origin.resize(text.size() + 1);
    std::iota(result.origin.begin(), result.origin.end(), 0U);
  }
  return result;
}

void Rewriter::copy_until(std::size_t end) {
  out_.bytes.append(in_.substr(at_, end - at_));
  if (aligned_) {
    for (std::size_t i = at_; i < end; ++i) {
      out_.origin.push_back(origin_of(i));
    }
  }
  at_ = end;
}

void Rewriter::replace_until(std::size_t end, std::string_view with) {
  out_.bytes.append(with);
  if (aligned_ && !with.empty()) {
    out_.origin.push_back(origin_of(at_));
    out_.origin.insert(out_.origin.end(), with.size() - 1, origin_of(end));
  }
  at_ = end;
}

AlignedText Rewriter::take() && {
  copy_until(in_.size());
  if (aligned_) {
    out_.origin.push_back(origin_of(in_.size()));
  }
  return std::move(out_);
}

}  // namespace expedite::text
