#include "expedite/text/unigram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "expedite/base/error.h"
#include "expedite/base/random.h"

namespace expedite::text {
namespace {

using Pieces = std::vector<std::pair<std::string, double>>;

std::vector<std::int32_t> encode(const Model& model, std::string_view text,
                                 std::vector<std::uint32_t>& bytes) {
  std::vector<std::int32_t> tokens;
  const auto worker = model.worker();
  worker->encode(text, {tokens});
  std::vector<std::int32_t> again;
  worker->encode(text, {again});  // a word it has met
  EXPECT_EQ(again, tokens);
  again.clear();
  worker->encode(text, {again, &bytes});
  EXPECT_EQ(again, tokens);
  return tokens;
}

/// The best sum of scores of all ways to write ASCII `text`.
double best_score(const Pieces& pieces, std::string_view text, double unknown) {
  std::vector<double> best(text.size() + 1, -1e300);
  best[0] = 0.0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    bool single = false;
    for (const auto& [piece, score] : pieces) {
      if (text.substr(at).starts_with(piece)) {
        best[at + piece.size()] = std::max(best[at + piece.size()], best[at] + score);
        single = single || piece.size() == 1;
      }
    }
    if (!single) {
      best[at + 1] = std::max(best[at + 1], best[at] + unknown);
    }
  }
  return best.back();
}

TEST(Unigram, FindsTheBestSum) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Philox random(seed, 0);
    std::uint64_t draw = 0;
    Pieces pieces = {{"<unk>", 0.0}, {"a", -5.0}, {"b", -6.0}, {"_", -4.0}};
    for (int i = 0; i < 40; ++i) {
      std::string piece;
      for (std::uint64_t n = 2 + random.bits(draw++) % 4; n > 0; --n) {
        piece += "ab_c"[random.bits(draw++) % 4];
      }
      if (std::ranges::find(pieces, piece, &Pieces::value_type::first) == pieces.end()) {
        pieces.emplace_back(piece, -static_cast<double>(random.bits(draw++) % 1000) / 50.0);
      }
    }
    double lowest = 0.0;
    for (const auto& [piece, score] : pieces) {
      lowest = std::min(lowest, score);
    }
    const auto model = make_unigram(pieces, {.unk = 0}, "test");
    for (int i = 0; i < 50; ++i) {
      std::string text;
      for (std::uint64_t n = 1 + random.bits(draw++) % 30; n > 0; --n) {
        text += "aabb_c"[random.bits(draw++) % 6];
      }
      std::vector<std::uint32_t> bytes;
      double score = 0.0;
      const auto tokens = encode(*model, text, bytes);
      for (std::size_t k = 0; k < tokens.size(); ++k) {
        // Unknown characters one after another are one token, and cost each for itself.
        score += tokens[k] == 0 ? (lowest - 10.0) * bytes[k] : pieces[tokens[k]].second;
      }
      EXPECT_NEAR(score, best_score(pieces, text, lowest - 10.0), 1e-9) << text << ", seed " << seed;
      EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}), text.size());
    }
  }
}

TEST(Unigram, UnknownCharacters) {
  std::vector<std::uint32_t> bytes;
  const Pieces pieces = {{"<unk>", 0.0}, {"a", -1.0}, {"<0xC3>", -2.0}, {"<0xA9>", -2.0}};
  EXPECT_EQ(encode(*make_unigram(pieces, {.unk = 0}, "test"), "aé中a", bytes),
            (std::vector<std::int32_t>{1, 0, 1}));
  EXPECT_EQ(bytes, (std::vector<std::uint32_t>{1, 5, 1}));
  EXPECT_EQ(encode(*make_unigram(pieces, {.byte_fallback = true, .unk = 0}, "test"), "aéa", bytes),
            (std::vector<std::int32_t>{1, 2, 3, 1}));
  std::vector<std::int32_t> tokens;
  EXPECT_THROW(make_unigram(pieces, {}, "test")->worker()->encode("中", {tokens}), Error);
}

}  // namespace
}  // namespace expedite::text
