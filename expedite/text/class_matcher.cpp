#include "expedite/text/class_matcher.h"

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>

#include "expedite/text/utf8.h"

namespace expedite::text {
namespace {

using Kind = RegexNode::Kind;
using Repeat = RegexNode::Repeat;

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kMostBits = 64;

/// For every character a word of bits.
class BitTable {
 public:
  BitTable() : index_(kBlocks, 0), words_(kBlock, 0) {}

  [[nodiscard]] std::uint64_t of(char32_t character) const {
    return words_[index_[character / kBlock] * kBlock + character % kBlock];
  }
  /// The words of the first characters, ASCII among them.
  [[nodiscard]] const std::uint64_t* first_block() const { return words_.data() + index_[0] * kBlock; }

  void build(const std::vector<CharSet>& sets) {
    std::map<std::vector<std::uint64_t>, std::uint16_t> known;
    words_.clear();
    std::vector<std::uint64_t> all((kBlocks * kBlock), 0);
    for (std::size_t bit = 0; bit < sets.size(); ++bit) {
      for (const CharRange& range : sets[bit].ranges()) {
        for (char32_t c = range.first; c <= range.last; ++c) {
          all[c] |= std::uint64_t{1} << bit;
        }
      }
    }
    for (std::size_t i = 0; i < kBlocks; ++i) {
      std::vector<std::uint64_t> block(all.begin() + static_cast<std::ptrdiff_t>(i * kBlock),
                                       all.begin() + static_cast<std::ptrdiff_t>((i + 1) * kBlock));
      const auto [at, added] = known.emplace(block, known.size());
      index_[i] = at->second;
      if (added) {
        words_.insert(words_.end(), block.begin(), block.end());
      }
    }
  }

 private:
  static constexpr std::size_t kBlock = 256;
  static constexpr std::size_t kBlocks = 0x110000 / kBlock;
  std::vector<std::uint16_t> index_;
  std::vector<std::uint64_t> words_;
};

/// One item of the expression, and what comes behind it: an index of `steps`, or kEnd.
struct Step {
  Kind kind = Kind::set;
  std::uint64_t bit = 0;  // of the set, or of what the branches can begin with
  std::uint32_t min = 1;
  std::uint32_t max = 1;
  Repeat repeat = Repeat::greedy;
  bool negative = false;
  bool optional = false;      // of a group: may be left out
  bool may_be_empty = false;  // of a group: perhaps matches at the end of the text
  std::vector<int> branches = {};
  int next = 0;
};
constexpr int kEnd = -1;

class ClassMatcher final : public Pattern {
 public:
  /// Whether all of it is built.
  bool compile(const std::vector<RegexSequence>& alternatives) {
    for (const RegexSequence& sequence : alternatives) {
      const std::optional<int> start = add(sequence, kEnd);
      if (!start) {
        return false;
      }
      starts_.push_back(*start);
    }
    first_alternative_ = sets_.size();
    for (const RegexSequence& sequence : alternatives) {
      sets_.push_back(can_begin(sequence));
    }
    if (sets_.size() > kMostBits || alternatives.empty()) {
      return false;
    }
    table_.build(sets_);
    ascii_ = table_.first_block();
    return true;
  }

  [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from) const override {
    for (std::size_t at = from; at < text.size(); at += character_length(text[at])) {
      for (std::uint64_t left = bits_at(text, at) >> first_alternative_; left != 0; left &= left - 1) {
        const std::size_t end = match(starts_[std::countr_zero(left)], text, at);
        if (end != kNone && end != at) {
          return Match{at, end};
        }
        if (end == at) {
          break;  // an empty match: the next one begins behind this character
        }
      }
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] std::uint64_t bits_at(std::string_view text, std::size_t at) const {
    const auto byte = static_cast<unsigned char>(text[at]);
    return byte < 0x80U ? ascii_[byte] : table_.of(character_at(text.data() + at));
  }

  /// Steps of a sequence before `next`, its last first; the index of the first, or nothing.
  std::optional<int> add(const RegexSequence& sequence, int next) {
    for (auto node = sequence.rbegin(); node != sequence.rend(); ++node) {
      std::optional<Step> step = step_of(*node, next);
      if (!step) {
        return std::nullopt;
      }
      step->next = next;
      steps_.push_back(std::move(*step));
      next = static_cast<int>(steps_.size()) - 1;
    }
    return next;
  }

  std::optional<Step> step_of(const RegexNode& node, int next) {
    Step step{.kind = node.kind, .repeat = node.repeat, .negative = node.negative};
    const bool once = node.min == 1 && node.max == 1;
    if (node.kind == Kind::set) {
      step.bit = std::uint64_t{1} << (bit_of(node.set) % kMostBits);
      step.min = static_cast<std::uint32_t>(node.min);
      step.max =
          node.max < 0 ? std::numeric_limits<std::uint32_t>::max() : static_cast<std::uint32_t>(node.max);
      return step;
    }
    const bool optional = node.min == 0 && node.max == 1 && node.repeat == Repeat::greedy;
    if ((node.kind != Kind::group || (!once && !optional)) && (node.kind != Kind::ahead || !once)) {
      return std::nullopt;
    }
    step.optional = optional;
    CharSet first;
    for (const RegexSequence& alternative : node.alternatives) {
      first = first.unite(can_begin(alternative));
      const std::optional<int> start = add(alternative, node.kind == Kind::ahead ? kEnd : next);
      if (!start) {
        return std::nullopt;
      }
      step.branches.push_back(*start);
    }
    step.bit = std::uint64_t{1} << (bit_of(first) % kMostBits);
    step.may_be_empty = first == CharSet::all();
    return step;
  }

  std::size_t bit_of(const CharSet& set) {
    for (std::size_t i = 0; i < sets_.size(); ++i) {
      if (sets_[i] == set) {
        return i;
      }
    }
    sets_.push_back(set);
    return sets_.size() - 1;
  }

  /// The characters that a match of the sequence can begin with, or more.
  static CharSet can_begin(const RegexSequence& sequence) {
    CharSet result;
    for (const RegexNode& node : sequence) {
      if (node.kind == Kind::ahead) {
        return CharSet::all();
      }
      if (node.kind == Kind::set) {
        result = result.unite(node.set);
      } else {
        for (const RegexSequence& alternative : node.alternatives) {
          result = result.unite(can_begin(alternative));  // all of them where one may be empty
        }
      }
      if (node.min > 0) {
        return result;
      }
    }
    return CharSet::all();
  }

  /// Where a match from step `index` on ends, or kNone. As deep as the expression is long.
  [[nodiscard]] std::size_t match(int index, std::string_view text, std::size_t at) const {
    while (index != kEnd) {
      const Step& step = steps_[index];
      switch (step.kind) {
        case Kind::set:
          if (step.max == 1 && step.min == 1) {
            if (at >= text.size() || (bits_at(text, at) & step.bit) == 0) {
              return kNone;
            }
            at += character_length(text[at]);
            break;
          }
          return match_repeated(step, text, at);
        case Kind::ahead:
          if ((match_any(step, text, at) != kNone) == step.negative) {
            return kNone;
          }
          break;
        default: {  // a group, whose branches go on behind it
          const std::size_t end = match_any(step, text, at);
          if (end != kNone || !step.optional) {
            return end;
          }
        }
      }
      index = step.next;
    }
    return at;
  }

  [[nodiscard]] std::size_t match_any(const Step& step, std::string_view text, std::size_t at) const {
    if (at < text.size() ? (bits_at(text, at) & step.bit) == 0 : !step.may_be_empty) {
      return kNone;
    }
    for (const int branch : step.branches) {
      if (const std::size_t end = match(branch, text, at); end != kNone) {
        return end;
      }
    }
    return kNone;
  }

  [[nodiscard]] std::size_t match_repeated(const Step& step, std::string_view text, std::size_t at) const {
    if (step.repeat == Repeat::lazy) {
      return match_lazily(step, text, at);
    }
    std::uint32_t count = 0;
    while (count < step.max && at < text.size() && (bits_at(text, at) & step.bit) != 0) {
      at += character_length(text[at]);
      ++count;
    }
    if (count < step.min) {
      return kNone;
    }
    if (step.next == kEnd) {
      return at;
    }
    while (true) {
      if (const std::size_t end = match(step.next, text, at); end != kNone) {
        return end;
      }
      if (count == step.min || step.repeat == Repeat::possessive) {
        return kNone;
      }
      --count;
      while (continues_character(text[--at])) {
      }
    }
  }

  [[nodiscard]] std::size_t match_lazily(const Step& step, std::string_view text, std::size_t at) const {
    for (std::uint32_t count = 0;; ++count) {
      if (count >= step.min) {
        if (const std::size_t end = match(step.next, text, at); end != kNone) {
          return end;
        }
      }
      if (count == step.max || at >= text.size() || (bits_at(text, at) & step.bit) == 0) {
        return kNone;
      }
      at += character_length(text[at]);
    }
  }

  std::vector<CharSet> sets_;  // by bit: those of the steps, then what each alternative can begin with
  std::size_t first_alternative_ = 0;
  std::vector<Step> steps_;
  std::vector<int> starts_;
  BitTable table_;
  const std::uint64_t* ascii_ = nullptr;
};

}  // namespace

std::unique_ptr<Pattern> make_class_matcher(const std::vector<RegexSequence>& alternatives) {
  auto matcher = std::make_unique<ClassMatcher>();
  if (!matcher->compile(alternatives)) {
    return nullptr;
  }
  return matcher;
}

}  // namespace expedite::text
