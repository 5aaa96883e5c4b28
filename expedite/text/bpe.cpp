#include "expedite/text/bpe.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "expedite/base/error.h"
#include "expedite/text/hash.h"
#include "expedite/text/seams.h"
#include "expedite/text/utf8.h"
#include "expedite/text/word_cache.h"

namespace expedite::text {
namespace {

constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();

/// What two tokens become. Most pairs become nothing, which a table of bits that fits the cache tells.
class MergeTable {
 public:
  MergeTable(std::size_t merges, std::int64_t tokens, const std::string& where)
      : slots_(std::bit_ceil(2 * merges + 1), kFree), known_(kBits / 64, 0), products_(merges, -1) {
    require(merges < (std::size_t{1} << kRankBits) && tokens <= std::int64_t{1} << kTokenBits,
            "{}: {} merges of {} tokens are more than the {} of {} that are read", where, merges, tokens,
            (1 << kRankBits) - 1, 1 << kTokenBits);
  }

  /// Of a pair that is there already the later rank counts.
  void set(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t product) {
    const std::uint64_t key = key_of(left, right);
    const std::uint64_t hash = hash_of(key);
    slots_[slot_of(key, hash)] = key << kRankBits | rank;
    known_[bit_of(hash) / 64] |= std::uint64_t{1} << bit_of(hash) % 64;
    products_[rank] = product;
  }

  /// The rank of the pair, or kNoRank.
  [[nodiscard]] std::uint32_t rank(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    const std::uint64_t hash = hash_of(key);
    if ((known_[bit_of(hash) / 64] >> bit_of(hash) % 64 & 1U) == 0) {
      return kNoRank;
    }
    const std::uint64_t slot = slots_[slot_of(key, hash)];
    return slot == kFree ? kNoRank : static_cast<std::uint32_t>(slot & ((std::uint64_t{1} << kRankBits) - 1));
  }

  /// What the merge of this rank makes.
  [[nodiscard]] std::int32_t product(std::uint32_t rank) const { return products_[rank]; }

 private:
  // A slot is a pair and its rank in 64 bits: the table is as small as it can be, for it is looked at in no
  // order. Free: no token has all of its bits set.
  static constexpr unsigned kTokenBits = 22;
  static constexpr unsigned kRankBits = 20;
  static constexpr std::uint64_t kFree = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::size_t kBits = std::size_t{1} << 22U;

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << kTokenBits | static_cast<std::uint32_t>(right);
  }
  static std::uint64_t hash_of(std::uint64_t key) { return mix(key, 0x9E3779B97F4A7C15U); }
  static std::size_t bit_of(std::uint64_t hash) { return hash >> 40U & (kBits - 1); }
  [[nodiscard]] std::size_t slot_of(std::uint64_t key, std::uint64_t hash) const {
    std::size_t slot = hash & (slots_.size() - 1);
    while (slots_[slot] != kFree && slots_[slot] >> kRankBits != key) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }

  Table<std::uint64_t> slots_;
  Table<std::uint64_t> known_;
  Table<std::int32_t> products_;  // by rank
};

class Bpe final : public Model {
 public:
  Bpe(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
      const BpeOptions& options, const std::string& where)
      : options_(options),
        vocabulary_(std::move(vocabulary)),
        merges_(merges.size(), vocabulary_.size(), where) {
    begin_table();
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      add_merge(merges[rank].first, merges[rank].second, static_cast<std::uint32_t>(rank), where);
    }
    if (options_.byte_level) {
      for (std::size_t pair = 0; pair < byte_pairs_.size(); ++pair) {
        const std::int32_t left = bytes_[pair >> 8U];
        const std::int32_t right = bytes_[pair & 0xFFU];
        byte_pairs_[pair] = left >= 0 && right >= 0 ? merges_.rank(left, right) : kNoRank;
      }
    }
  }

  [[nodiscard]] std::unique_ptr<ModelWorker> worker() const override;

  [[nodiscard]] const BpeOptions& options() const { return options_; }
  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }
  [[nodiscard]] const MergeTable& merges() const { return merges_; }
  /// The rank of the tokens of two bytes.
  [[nodiscard]] std::uint32_t rank_of_bytes(char left, char right) const {
    return byte_pairs_[std::size_t{static_cast<unsigned char>(left)} << 8U |
                       static_cast<unsigned char>(right)];
  }
  [[nodiscard]] std::int32_t of_byte(char byte) const { return bytes_[static_cast<unsigned char>(byte)]; }
  [[nodiscard]] std::int32_t of_character(char32_t character) const { return characters_[character]; }
  /// Nothing where pieces cannot be cut.
  [[nodiscard]] const Seams* seams() const { return seams_ ? &*seams_ : nullptr; }

  [[nodiscard]] bool fallback_holds(std::string_view character) const {
    return options_.byte_fallback && std::ranges::all_of(character, [&](char c) { return of_byte(c) >= 0; });
  }

 private:
  void begin_table() {
    if (options_.byte_level) {
      for (int byte = 0; byte < 256; ++byte) {
        const auto c = static_cast<char>(byte);
        bytes_[byte] = vocabulary_.find({&c, 1});
      }
      byte_pairs_.resize(std::size_t{1} << 16U);
      return;
    }
    bytes_ = byte_tokens(vocabulary_);
    characters_.assign(0x110000, -1);
    for (const auto& [token, id] : vocabulary_.tokens()) {
      if (!token.empty() && character_length(token[0]) == token.size()) {
        characters_[character_at(token.data())] = vocabulary_.find(token);
      }
    }
    if (!options_.ignore_merges) {
      seams_.emplace();
    }
  }

  void add_merge(const std::string& left, const std::string& right, std::uint32_t rank,
                 const std::string& where) {
    const std::int32_t a = vocabulary_.find(left);
    const std::int32_t b = vocabulary_.find(right);
    const std::int32_t both = vocabulary_.find(left + right);
    if (a < 0 || b < 0 || both < 0) {
      fail("{}: merges[{}] joins '{}' and '{}', but {} is not in the vocabulary", where, rank, left, right,
           a < 0   ? "the first"
           : b < 0 ? "the second"
                   : "what comes of it");
    }
    merges_.set(a, b, rank, both);
    if (seams_) {
      seams_->add_token(left + right);
      const bool of_fallback =
          std::ranges::find(bytes_, a) != bytes_.end() || std::ranges::find(bytes_, b) != bytes_.end();
      if (options_.byte_fallback && of_fallback) {
        seams_.reset();  // bytes of unknown characters may be joined
      }
    }
  }

  BpeOptions options_;
  Vocabulary vocabulary_;
  MergeTable merges_;
  std::array<std::int32_t, 256> bytes_ = {};
  std::vector<std::uint32_t> byte_pairs_;
  std::vector<std::int32_t> characters_;
  std::optional<Seams> seams_;
};

class BpeWorker final : public ModelWorker {
 public:
  explicit BpeWorker(const Bpe& model) : model_(model) {}

  void encode(std::string_view piece, const Ids& out) override {
    const Seams* seams = model_.seams();
    if (seams == nullptr) {
      encode_word(piece, out);
      return;
    }
    const bool fuses = model_.options().fuse_unk;
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t end = seams->part_end(piece, at, [&](char32_t left, char32_t right) {
        return fuses && model_.of_character(left) < 0 && model_.of_character(right) < 0;
      });
      encode_word(piece.substr(at, end - at), out);
      at = end;
    }
  }

  void expect(std::string_view piece) override {
    if (model_.seams() == nullptr && WordCache::takes(piece)) {
      cache_.prefetch(piece);
    }
  }

 private:
  struct Symbol {
    std::int32_t token = -1;
    std::uint32_t bytes = 0;
  };

  void encode_word(std::string_view word, const Ids& out) {
    if (out.bytes != nullptr || !WordCache::takes(word)) {
      merge_word(word, out);
      return;
    }
    if (const auto known = cache_.find(word); !known.empty()) {
      for (const std::int32_t token : known) {
        out.tokens.push_back(token);
      }
      return;
    }
    const std::size_t before = out.tokens.size();
    merge_word(word, out);
    cache_.put(word, std::span(out.tokens).subspan(before));
  }

  void merge_word(std::string_view word, const Ids& out) {
    if (model_.options().ignore_merges) {
      if (const std::int32_t whole = model_.vocabulary().find(word); whole >= 0) {
        out.add(whole, word.size());
        return;
      }
    }
    symbols_.clear();
    if (model_.options().byte_level) {
      begin_with_bytes(word);
    } else {
      begin_with_characters(word);
    }
    constexpr std::size_t kShort = 32;
    if (symbols_.size() <= kShort) {
      find_merges(word);
      merge_short();
    } else {
      merge_long();
    }
    for (const Symbol& symbol : symbols_) {
      out.add(symbol.token, symbol.bytes);
    }
  }

  void begin_with_bytes(std::string_view word) {
    for (const char byte : word) {
      add_symbol(model_.of_byte(byte), 1);
    }
  }

  void begin_with_characters(std::string_view word) {
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t length = character_length(word[at]);
      const std::int32_t token = model_.of_character(character_at(word.data() + at));
      const std::string_view character = word.substr(at, length);
      if (token < 0 && model_.fallback_holds(character)) {
        for (const char byte : character) {
          symbols_.push_back({model_.of_byte(byte), 1});
        }
      } else {
        add_symbol(token, static_cast<std::uint32_t>(length));
      }
      at += length;
    }
  }

  void add_symbol(std::int32_t token, std::uint32_t bytes) {
    const std::int32_t unk = model_.options().unk;
    if (token < 0 && model_.options().fuse_unk && !symbols_.empty() && symbols_.back().token == unk &&
        unk >= 0) {
      symbols_.back().bytes += bytes;
    } else if (token >= 0 || unk >= 0) {
      symbols_.push_back({token >= 0 ? token : unk, bytes});
    }
  }

  [[nodiscard]] std::uint32_t rank_at(std::size_t i) const {
    return model_.merges().rank(symbols_[i].token, symbols_[i + 1].token);
  }

  /// Of each symbol and the next.
  void find_merges(std::string_view word) {
    ranks_.clear();
    const bool of_bytes = model_.options().byte_level && symbols_.size() == word.size();
    for (std::size_t i = 0; i + 1 < symbols_.size(); ++i) {
      ranks_.push_back(of_bytes ? model_.rank_of_bytes(word[i], word[i + 1]) : rank_at(i));
    }
  }

  /// Quadratic in the length, and for short words the fastest way.
  void merge_short() {
    while (!ranks_.empty()) {
      std::size_t best = 0;
      for (std::size_t i = 1; i < ranks_.size(); ++i) {
        best = ranks_[i] < ranks_[best] ? i : best;
      }
      if (ranks_[best] == kNoRank) {
        return;
      }
      symbols_[best].token = model_.merges().product(ranks_[best]);
      symbols_[best].bytes += symbols_[best + 1].bytes;
      symbols_.erase(symbols_.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      ranks_.erase(ranks_.begin() + static_cast<std::ptrdiff_t>(best));
      if (best < ranks_.size()) {
        ranks_[best] = rank_at(best);
      }
      if (best > 0) {
        ranks_[best - 1] = rank_at(best - 1);
      }
    }
  }

  /// n log n: a heap of merges, and symbols in a list. An entry whose symbols have changed since is skipped.
  void merge_long() {
    const auto size = static_cast<std::uint32_t>(symbols_.size());
    links_.resize(size);
    heap_.clear();
    for (std::uint32_t i = 0; i < size; ++i) {
      links_[i] = {i - 1, i + 1};
    }
    for (std::uint32_t i = 0; i + 1 < size; ++i) {
      push_merge(i, i + 1);
    }
    while (!heap_.empty()) {
      std::ranges::pop_heap(heap_, std::greater<>(), &Candidate::order);
      const Candidate candidate = heap_.back();
      heap_.pop_back();
      const auto left = static_cast<std::uint32_t>(candidate.order);
      const std::uint32_t right = links_[left].next;
      if (symbols_[left].token != candidate.left || right >= size ||
          symbols_[right].token != candidate.right) {
        continue;
      }
      symbols_[left].token = model_.merges().product(static_cast<std::uint32_t>(candidate.order >> 32U));
      symbols_[left].bytes += symbols_[right].bytes;
      symbols_[right].token = -1;
      links_[left].next = links_[right].next;
      if (links_[left].next < size) {
        links_[links_[left].next].previous = left;
        push_merge(left, links_[left].next);
      }
      if (links_[left].previous < size) {
        push_merge(links_[left].previous, left);
      }
    }
    std::erase_if(symbols_, [](const Symbol& symbol) { return symbol.token < 0; });
  }

  void push_merge(std::uint32_t left, std::uint32_t right) {
    const std::int32_t a = symbols_[left].token;
    const std::int32_t b = symbols_[right].token;
    const std::uint32_t rank = model_.merges().rank(a, b);
    if (rank != kNoRank) {
      heap_.push_back({std::uint64_t{rank} << 32U | left, a, b});
      std::ranges::push_heap(heap_, std::greater<>(), &Candidate::order);
    }
  }

  struct Link {
    std::uint32_t previous = 0;  // of the first: beyond the end
    std::uint32_t next = 0;
  };
  struct Candidate {
    std::uint64_t order = 0;  // rank, then place
    std::int32_t left = -1;   // the tokens that were there
    std::int32_t right = -1;
  };

  const Bpe& model_;
  std::vector<Symbol> symbols_;
  std::vector<std::uint32_t> ranks_;  // of each symbol and the next
  std::vector<Link> links_;
  std::vector<Candidate> heap_;
  WordCache cache_;
};

std::unique_ptr<ModelWorker> Bpe::worker() const {
  return std::make_unique<BpeWorker>(*this);
}

}  // namespace

std::array<std::int32_t, 256> byte_tokens(const Vocabulary& vocabulary) {
  std::array<std::int32_t, 256> tokens = {};
  for (int byte = 0; byte < 256; ++byte) {
    tokens[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte));
  }
  return tokens;
}

std::unique_ptr<Model> make_bpe(Vocabulary vocabulary,
                                const std::vector<std::pair<std::string, std::string>>& merges,
                                const BpeOptions& options, const std::string& where) {
  return std::make_unique<Bpe>(std::move(vocabulary), merges, options, where);
}

}  // namespace expedite::text
