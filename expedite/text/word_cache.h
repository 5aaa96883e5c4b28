// The ids of words that came before: most of a text is a few thousand words.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "expedite/text/hash.h"
#include "expedite/text/huge_pages.h"

namespace expedite::text {

/// A table of fixed size, for one thread. A word that hashes to a full place takes that of the one used
/// longer ago. Nothing is allocated after construction.
class WordCache {
 public:
  static constexpr std::size_t kMostBytes = 26;
  static constexpr std::size_t kMostIds = 8;

  WordCache() : entries_(2 * kSets) {}

  /// Whether a word of this length is kept at all.
  [[nodiscard]] static bool takes(std::string_view word) { return word.size() <= kMostBytes; }

  /// The ids of `word`, or an empty span. Valid until the next put().
  [[nodiscard]] std::span<const std::int32_t> find(std::string_view word) {
    const std::uint64_t hash = hash_bytes(word);
    Entry* set = set_of(hash);
    if (set[0].holds(hash, word)) {
      return set[0].list();
    }
    if (set[1].holds(hash, word)) {
      std::swap(set[0], set[1]);
      return set[0].list();
    }
    return {};
  }

  /// Fetches what find(word) will look at.
  void prefetch(std::string_view word) {
    const Entry* set = set_of(hash_bytes(word));
    __builtin_prefetch(&set[0]);
    __builtin_prefetch(&set[1]);
  }

  void put(std::string_view word, std::span<const std::int32_t> ids) {
    if (ids.empty() || ids.size() > kMostIds) {
      return;
    }
    const std::uint64_t hash = hash_bytes(word);
    Entry* set = set_of(hash);
    set[1] = set[0];
    Entry& entry = set[0];
    entry.tag = static_cast<std::uint32_t>(hash);
    entry.bytes = static_cast<std::uint8_t>(word.size());
    entry.count = static_cast<std::uint8_t>(ids.size());
    std::memcpy(entry.word.data(), word.data(), word.size());
    std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  static constexpr std::size_t kSets = 1U << 16U;

  struct alignas(64) Entry {  // one cache line
    std::uint32_t tag = 0;
    std::uint8_t bytes = 0;
    std::uint8_t count = 0;
    std::array<char, kMostBytes> word = {};
    std::array<std::int32_t, kMostIds> ids = {};

    [[nodiscard]] bool holds(std::uint64_t hash, std::string_view other) const {
      return tag == static_cast<std::uint32_t>(hash) && count > 0 && bytes == other.size() &&
             std::memcmp(word.data(), other.data(), other.size()) == 0;
    }
    [[nodiscard]] std::span<const std::int32_t> list() const { return {ids.data(), count}; }
  };

  [[nodiscard]] Entry* set_of(std::uint64_t hash) { return &entries_[2 * ((hash >> 32U) % kSets)]; }

  Table<Entry> entries_;
};

}  // namespace expedite::text
