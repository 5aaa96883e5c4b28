#include "expedite/text/unigram.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "expedite/base/error.h"
#include "expedite/text/bpe.h"
#include "expedite/text/hash.h"
#include "expedite/text/seams.h"
#include "expedite/text/utf8.h"
#include "expedite/text/vocabulary.h"
#include "expedite/text/word_cache.h"

namespace expedite::text {
namespace {

/// A tree of bytes, its edges in one hash table.
class Trie {
 public:
  explicit Trie(std::size_t bytes) : slots_(std::bit_ceil(2 * bytes + 2)), tokens_(1, -1) {}

  void add(std::string_view text, std::int32_t token) {
    std::uint32_t node = 0;
    for (const char byte : text) {
      Slot& slot = slots_[slot_of(node, byte)];
      if (slot.child == 0) {
        slot = {key_of(node, byte), static_cast<std::uint32_t>(tokens_.size())};
        tokens_.push_back(-1);
      }
      node = slot.child;
    }
    tokens_[node] = token;
  }

  /// The node behind `byte`, or 0, the root, when there is none.
  [[nodiscard]] std::uint32_t child(std::uint32_t node, char byte) const {
    return slots_[slot_of(node, byte)].child;
  }
  [[nodiscard]] std::int32_t token(std::uint32_t node) const { return tokens_[node]; }

 private:
  struct Slot {
    std::uint64_t key = 0;
    std::uint32_t child = 0;  // 0: free
  };
  static std::uint64_t key_of(std::uint32_t node, char byte) {
    return std::uint64_t{node} << 8U | static_cast<unsigned char>(byte);
  }
  [[nodiscard]] std::size_t slot_of(std::uint32_t node, char byte) const {
    const std::uint64_t key = key_of(node, byte);
    std::size_t slot = mix(key + 1, 0x9E3779B97F4A7C15U) & (slots_.size() - 1);
    while (slots_[slot].child != 0 && slots_[slot].key != key) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }

  Table<Slot> slots_;
  std::vector<std::int32_t> tokens_;  // by node; -1: none ends here
};

std::size_t total_bytes(const std::vector<std::pair<std::string, double>>& pieces) {
  std::size_t bytes = 0;
  for (const auto& [piece, score] : pieces) {
    bytes += piece.size();
  }
  return bytes;
}

class Unigram final : public Model {
 public:
  Unigram(const std::vector<std::pair<std::string, double>>& pieces, const UnigramOptions& options,
          std::string where)
      : options_(options), where_(std::move(where)), trie_(total_bytes(pieces)) {
    double lowest = std::numeric_limits<double>::infinity();
    std::vector<std::pair<std::string, std::int32_t>> tokens;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const auto& [piece, score] = pieces[i];
      const auto id = static_cast<std::int32_t>(i);
      scores_.push_back(score);
      lowest = std::min(lowest, score);
      trie_.add(piece, id);
      seams_.add_token(piece);
      tokens.emplace_back(piece, id);
    }
    constexpr double kUnknownBelow = 10.0;
    unknown_score_ = lowest - kUnknownBelow;
    bytes_ = byte_tokens(Vocabulary(std::move(tokens)));
  }

  [[nodiscard]] std::unique_ptr<ModelWorker> worker() const override;

  [[nodiscard]] const UnigramOptions& options() const { return options_; }
  [[nodiscard]] const Trie& trie() const { return trie_; }
  [[nodiscard]] const Seams& seams() const { return seams_; }
  [[nodiscard]] double score(std::int32_t token) const { return scores_[token]; }
  [[nodiscard]] double unknown_score() const { return unknown_score_; }
  [[nodiscard]] std::int32_t of_byte(char byte) const { return bytes_[static_cast<unsigned char>(byte)]; }
  [[nodiscard]] const std::string& where() const { return where_; }

  [[nodiscard]] bool knows(char32_t character) const {
    std::string bytes;
    append_character(bytes, character);
    std::uint32_t node = 0;
    for (const char byte : bytes) {
      node = trie_.child(node, byte);
      if (node == 0) {
        return false;
      }
    }
    return trie_.token(node) >= 0;
  }

 private:
  UnigramOptions options_;
  std::string where_;
  Trie trie_;
  Seams seams_;
  std::vector<double> scores_;
  std::array<std::int32_t, 256> bytes_ = {};
  double unknown_score_ = 0.0;
};

class UnigramWorker final : public ModelWorker {
 public:
  explicit UnigramWorker(const Unigram& model) : model_(model) {}

  void encode(std::string_view piece, const Ids& out) override {
    for (std::size_t at = 0; at < piece.size();) {
      // Unknown characters one after another are one token.
      const std::size_t end = model_.seams().part_end(piece, at, [this](char32_t left, char32_t right) {
        return !model_.knows(left) && !model_.knows(right);
      });
      encode_part(piece.substr(at, end - at), out);
      at = end;
    }
  }

 private:
  /// The best way to a place in the text.
  struct Node {
    double score = 0.0;
    std::size_t from = 0;
    std::int32_t token = -1;  // its last piece; -1: an unknown character
    bool reached = false;
  };
  struct Found {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int32_t token = -1;
  };

  void encode_part(std::string_view part, const Ids& out) {
    if (out.bytes != nullptr || !WordCache::takes(part)) {
      search(part, out);
      return;
    }
    if (const auto known = cache_.find(part); !known.empty()) {
      out.tokens.insert(out.tokens.end(), known.begin(), known.end());
      return;
    }
    const std::size_t before = out.tokens.size();
    search(part, out);
    cache_.put(part, std::span(out.tokens).subspan(before));
  }

  void search(std::string_view part, const Ids& out) {
    best_.assign(part.size() + 1, {});
    for (std::size_t at = 0; at < part.size(); at += character_length(part[at])) {
      extend(part, at);
    }
    found_.clear();
    for (std::size_t at = part.size(); at > 0; at = best_[at].from) {
      const Node& node = best_[at];
      if (node.token < 0 && !found_.empty() && found_.back().token < 0) {
        found_.back().begin = node.from;
      } else {
        found_.push_back({node.from, at, node.token});
      }
    }
    for (auto found = found_.rbegin(); found != found_.rend(); ++found) {
      write(part.substr(found->begin, found->end - found->begin), found->token, out);
    }
  }

  /// Every piece that begins at `at`. Of equal sums the first found stays, as in Hugging Face's search.
  void extend(std::string_view part, std::size_t at) {
    const double score = best_[at].score;
    const std::size_t one = at + character_length(part[at]);
    bool has_single = false;
    std::uint32_t node = 0;
    for (std::size_t end = at; end < part.size();) {
      node = model_.trie().child(node, part[end++]);
      if (node == 0) {
        break;
      }
      if (const std::int32_t token = model_.trie().token(node); token >= 0) {
        // The unknown token's own score is that of unknown characters.
        reach(end, score + (token == model_.options().unk ? model_.unknown_score() : model_.score(token)), at,
              token);
        has_single = has_single || end == one;
      }
    }
    if (!has_single) {
      reach(one, score + model_.unknown_score(), at, -1);
    }
  }

  void reach(std::size_t end, double score, std::size_t from, std::int32_t token) {
    Node& node = best_[end];
    if (!node.reached || score > node.score) {
      node = {score, from, token, true};
    }
  }

  void write(std::string_view text, std::int32_t token, const Ids& out) const {
    if (token >= 0) {
      out.add(token, text.size());
      return;
    }
    if (model_.options().byte_fallback &&
        std::ranges::all_of(text, [this](char byte) { return model_.of_byte(byte) >= 0; })) {
      for (const char byte : text) {
        out.add(model_.of_byte(byte), 1);
      }
      return;
    }
    require(model_.options().unk >= 0,
            "{}: '{}' has no piece, and there is no unk_id for it: encode such text with another tokenizer",
            model_.where(), text);
    out.add(model_.options().unk, text.size());
  }

  const Unigram& model_;
  std::vector<Node> best_;
  std::vector<Found> found_;
  WordCache cache_;
};

std::unique_ptr<ModelWorker> Unigram::worker() const {
  return std::make_unique<UnigramWorker>(*this);
}

}  // namespace

std::unique_ptr<Model> make_unigram(const std::vector<std::pair<std::string, double>>& pieces,
                                    const UnigramOptions& options, const std::string& where) {
  require(!pieces.empty(), "{}: vocab is empty", where);
  return std::make_unique<Unigram>(pieces, options, where);
}

}  // namespace expedite::text
