#include "expedite/text/vocabulary.h"

#include <algorithm>
#include <bit>

#include "expedite/text/hash.h"

namespace expedite::text {
namespace {

std::uint32_t tag_of(std::uint64_t hash) {
  return static_cast<std::uint32_t>(hash >> 32U);
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::pair<std::string, std::int32_t>> tokens)
    : tokens_(std::move(tokens)) {
  slots_.resize(std::bit_ceil(2 * tokens_.size() + 1));
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const auto& [token, id] = tokens_[i];
    slots_[slot_of(token)] = {static_cast<std::uint32_t>(i) + 1, tag_of(hash_bytes(token))};
    size_ = std::max<std::int64_t>(size_, id + std::int64_t{1});
    longest_ = std::max(longest_, token.size());
  }
}

std::size_t Vocabulary::slot_of(std::string_view token) const {
  const std::uint64_t hash = hash_bytes(token);
  std::size_t slot = hash & (slots_.size() - 1);
  while (slots_[slot].index != 0 &&
         (slots_[slot].tag != tag_of(hash) || tokens_[slots_[slot].index - 1].first != token)) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

std::int32_t Vocabulary::find(std::string_view token) const {
  if (slots_.empty() || token.size() > longest_) {
    return -1;
  }
  const std::uint32_t found = slots_[slot_of(token)].index;
  return found == 0 ? -1 : tokens_[found - 1].second;
}

}  // namespace expedite::text
