#include "expedite/text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "expedite/base/error.h"
#include "expedite/base/random.h"
#include "expedite/text/utf8.h"

namespace expedite::text {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

struct Trained {
  std::vector<std::pair<std::string, std::int32_t>> tokens;
  Merges merges;
};

/// Characters of `alphabet`, and tokens made by joining two that are there, at random.
Trained random_tokens(const std::vector<std::string>& alphabet, int merges, std::uint64_t seed) {
  const Philox random(seed, 0);
  std::uint64_t draw = 0;
  Trained trained;
  std::map<std::string, std::int32_t> ids;
  const auto add = [&](const std::string& token) {
    if (ids.emplace(token, ids.size()).second) {
      trained.tokens.emplace_back(token, ids.at(token));
    }
  };
  for (const std::string& character : alphabet) {
    add(character);
  }
  while (static_cast<int>(trained.merges.size()) < merges) {
    const std::string left = trained.tokens[random.bits(draw++) % trained.tokens.size()].first;
    const std::string right = trained.tokens[random.bits(draw++) % trained.tokens.size()].first;
    if (left.size() + right.size() < 12 &&
        std::ranges::find(trained.merges, std::pair(left, right)) == trained.merges.end()) {
      trained.merges.emplace_back(left, right);
      add(left + right);
    }
  }
  return trained;
}

/// The definition: again and again the first merge of the list that is possible, at its leftmost place.
std::vector<std::string> by_definition(std::vector<std::string> word, const Merges& merges) {
  while (true) {
    std::size_t best = merges.size();
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < word.size(); ++i) {
      const auto rank = static_cast<std::size_t>(std::ranges::find(merges, std::pair(word[i], word[i + 1])) -
                                                 merges.begin());
      if (rank < best) {
        best = rank;
        where = i;
      }
    }
    if (best == merges.size()) {
      return word;
    }
    word[where] += word[where + 1];
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> result;
  for (std::size_t at = 0; at < text.size(); at += character_length(text[at])) {
    result.emplace_back(text.substr(at, character_length(text[at])));
  }
  return result;
}

struct Encoded {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint32_t> bytes;
};

Encoded encode(ModelWorker& worker, std::string_view text) {
  Encoded encoded;
  worker.encode(text, {encoded.tokens});
  Encoded again;
  worker.encode(text, {again.tokens, &again.bytes});
  EXPECT_EQ(encoded.tokens, again.tokens) << text;  // with words it has met, and without
  return again;
}

TEST(Bpe, IsItsDefinitionOnBytesAndOnCharacters) {
  const std::vector<std::string> alphabet = {"a", "b", "c", "é", "▁", "中"};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Trained trained = random_tokens(alphabet, 60, seed);
    const auto model = make_bpe(Vocabulary(trained.tokens), trained.merges, {}, "test");
    const auto worker = model->worker();
    const Philox random(seed, 1);
    std::uint64_t draw = 0;
    for (int i = 0; i < 100; ++i) {
      std::string text;
      for (std::uint64_t n = 1 + random.bits(draw++) % (i % 10 == 0 ? 200 : 12); n > 0; --n) {
        text += alphabet[random.bits(draw++) % alphabet.size()];
      }
      const Vocabulary vocabulary(trained.tokens);
      std::vector<std::int32_t> expected;
      for (const std::string& token : by_definition(characters(text), trained.merges)) {
        expected.push_back(vocabulary.find(token));
      }
      const Encoded encoded = encode(*worker, text);
      ASSERT_EQ(encoded.tokens, expected) << text << ", seed " << seed;
      ASSERT_EQ(std::accumulate(encoded.bytes.begin(), encoded.bytes.end(), std::size_t{0}), text.size());
    }
  }
}

TEST(Bpe, OfEqualMergesTheLeftmostComesFirst) {
  const Vocabulary tokens({{"a", 0}, {"aa", 1}, {"aaa", 2}});
  const auto model = make_bpe(tokens, {{"a", "a"}, {"aa", "a"}}, {.byte_level = true}, "test");
  EXPECT_EQ(encode(*model->worker(), "aaaaa").tokens, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(encode(*model->worker(), std::string(101, 'a')).tokens.size(), 50U);
}

TEST(Bpe, IgnoresMergesForPiecesThatAreTokens) {
  const Vocabulary tokens({{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"bc", 4}, {"abc", 5}});
  const Merges merges = {{"b", "c"}, {"a", "b"}};
  const auto merged = make_bpe(tokens, merges, {.byte_level = true}, "test");
  EXPECT_EQ(encode(*merged->worker(), "abc").tokens, (std::vector<std::int32_t>{0, 4}));
  const auto whole = make_bpe(tokens, merges, {.byte_level = true, .ignore_merges = true}, "test");
  EXPECT_EQ(encode(*whole->worker(), "abc").tokens, (std::vector<std::int32_t>{5}));
  EXPECT_EQ(encode(*whole->worker(), "abcc").tokens, (std::vector<std::int32_t>{0, 4, 2}));
}

TEST(Bpe, UnknownCharacters) {
  const std::vector<std::pair<std::string, std::int32_t>> tokens = {
      {"<unk>", 0}, {"a", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}};
  const auto ids = [&](const BpeOptions& options) {
    return encode(*make_bpe(Vocabulary(tokens), {}, options, "test")->worker(), "aéß中文a");
  };
  using Tokens = std::vector<std::int32_t>;
  EXPECT_EQ(ids({}).tokens, (Tokens{1, 1}));  // left out
  EXPECT_EQ(ids({.unk = 0}).tokens, (Tokens{1, 0, 0, 0, 0, 1}));
  const Encoded fused = ids({.fuse_unk = true, .unk = 0});
  EXPECT_EQ(fused.tokens, (Tokens{1, 0, 1}));
  EXPECT_EQ(fused.bytes, (std::vector<std::uint32_t>{1, 10, 1}));
  const Encoded fallback = ids({.byte_fallback = true, .fuse_unk = true, .unk = 0});
  EXPECT_EQ(fallback.tokens, (Tokens{1, 2, 3, 0, 1}));
  EXPECT_EQ(fallback.bytes, (std::vector<std::uint32_t>{1, 1, 1, 8, 1}));
}

TEST(Bpe, NamesMergesThatDoNotFitTheVocabulary) {
  for (const Merges& merges : {Merges{{"a", "b"}}, Merges{{"a", "c"}}, Merges{{"c", "a"}}}) {
    EXPECT_THROW(static_cast<void>(make_bpe(Vocabulary({{"a", 0}, {"b", 1}}), merges, {}, "test")), Error);
  }
}

TEST(Bpe, ALongPieceTakesNoQuadraticTime) {
  const Trained trained = random_tokens({"a", "b"}, 30, 5);
  const auto model = make_bpe(Vocabulary(trained.tokens), trained.merges, {.byte_level = true}, "test");
  std::string text;
  const Philox random(5, 1);
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    text += "ab"[random.bits(i) % 2];
  }
  std::vector<std::int32_t> tokens;
  std::vector<std::uint32_t> bytes;
  model->worker()->encode(text, {tokens, &bytes});
  EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}), text.size());
}

}  // namespace
}  // namespace expedite::text
