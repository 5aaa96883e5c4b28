#include "expedite/cost/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "expedite/base/error.h"
#include "expedite/base/random.h"

namespace expedite::cost {
namespace {

/// Every way to draw `left` more experts, one after the other, that misses `group`: the sum of their
/// probabilities.
double miss_by_enumeration(const std::vector<double>& weights, std::vector<bool>& drawn, std::int64_t left,
                           const std::vector<std::int64_t>& group) {
  if (left == 0) {
    return 1.0;
  }
  double total = 0.0;
  for (std::size_t e = 0; e < weights.size(); ++e) {
    total += drawn[e] ? 0.0 : weights[e];
  }
  double miss = 0.0;
  for (std::size_t e = 0; e < weights.size(); ++e) {
    if (drawn[e] || std::ranges::count(group, static_cast<std::int64_t>(e)) > 0) {
      continue;
    }
    drawn[e] = true;
    miss += weights[e] / total * miss_by_enumeration(weights, drawn, left - 1, group);
    drawn[e] = false;
  }
  return miss;
}

double hit_by_enumeration(const std::vector<double>& weights, std::int64_t topk,
                          const std::vector<std::int64_t>& group) {
  std::vector<bool> drawn(weights.size(), false);
  return 1.0 - miss_by_enumeration(weights, drawn, topk, group);
}

TEST(Routing, EqualsEnumeration) {
  for (const std::int64_t experts : {1, 2, 3, 5, 7}) {
    for (std::int64_t topk = 1; topk <= std::min<std::int64_t>(experts, 4); ++topk) {
      for (std::uint64_t subset = 0; subset < (std::uint64_t{1} << experts); ++subset) {
        std::vector<std::int64_t> group;
        for (std::int64_t e = 0; e < experts; ++e) {
          if ((subset >> e) % 2 == 1) {
            group.push_back(e);
          }
        }
        const std::vector<double> even(static_cast<std::size_t>(experts), 1.0);
        EXPECT_NEAR(hit_probability({experts, topk}, group), hit_by_enumeration(even, topk, group), 1e-12);
        EXPECT_NEAR(hit_probability({experts, topk, even}, group), hit_by_enumeration(even, topk, group),
                    1e-8);
        for (const double exponent : {0.5, 1.2, 3.0}) {
          const auto weights = zipf_weights(experts, exponent);
          EXPECT_NEAR(hit_probability({experts, topk, weights}, group),
                      hit_by_enumeration(weights, topk, group), 1e-8)
              << experts << " experts, subset " << subset << ", exponent " << exponent;
        }
      }
    }
  }
}

TEST(Routing, IsPreciseForManyExperts) {
  const std::vector<double> even(256, 0.7);
  for (const std::int64_t topk : {1, 8, 32}) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{16}, std::size_t{250}}) {
      std::vector<std::int64_t> group(size);
      std::iota(group.begin(), group.end(), 3);
      EXPECT_NEAR(hit_probability({256, topk, even}, group), hit_probability({256, topk}, group), 1e-8)
          << topk << " of 256, group of " << size;
    }
  }
}

/// Chooses topk experts, one draw after the other.
std::vector<std::int64_t> draw(const std::vector<double>& weights, std::int64_t topk, const Philox& random) {
  std::vector<double> left = weights;
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < topk; ++i) {
    const double total = std::accumulate(left.begin(), left.end(), 0.0);
    double point = static_cast<double>(random.bits(static_cast<std::uint64_t>(i)) >> 11) * 0x1p-53 * total;
    std::size_t expert = 0;
    while (expert + 1 < left.size() && point >= left[expert]) {
      point -= left[expert++];
    }
    left[expert] = 0.0;
    chosen.push_back(static_cast<std::int64_t>(expert));
  }
  return chosen;
}

// A skewed routing on uneven ranks, one of them without experts, against tokens drawn at random.
TEST(Routing, SpreadEqualsThatOfTokensDrawn) {
  const std::vector<int> rank_of_expert = {0, 0, 0, 1, 1, 3, 3, 3, 3, 3, 1, 4};
  const std::vector<int> node_of_rank = {0, 0, 1, 1, 2};
  const Routing routing{.experts = 12, .topk = 4, .weights = zipf_weights(12, 1.1)};
  const Spread spread = expected_spread(routing, rank_of_expert, node_of_rank);
  constexpr int kTokens = 40'000;
  std::vector<double> copies(5, 0.0);
  std::vector<double> ranks(5, 0.0);
  std::vector<double> nodes(3, 0.0);
  for (int token = 0; token < kTokens; ++token) {
    std::vector<bool> rank_hit(5, false);
    std::vector<bool> node_hit(3, false);
    for (const std::int64_t expert : draw(routing.weights, 4, Philox(7, static_cast<std::uint64_t>(token)))) {
      const auto rank = static_cast<std::size_t>(rank_of_expert[static_cast<std::size_t>(expert)]);
      copies[rank] += 1.0 / kTokens;
      rank_hit[rank] = true;
      node_hit[static_cast<std::size_t>(node_of_rank[rank])] = true;
    }
    for (std::size_t i = 0; i < 5; ++i) {
      ranks[i] += rank_hit[i] ? 1.0 / kTokens : 0.0;
    }
    for (std::size_t i = 0; i < 3; ++i) {
      nodes[i] += node_hit[i] ? 1.0 / kTokens : 0.0;
    }
  }
  constexpr double kFiveSigma = 5.0 * 0.5 / 200.0;  // of a frequency over 40,000 tokens
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(spread.copies[i], copies[i], 2 * kFiveSigma);
    EXPECT_NEAR(spread.rank_hit[i], ranks[i], kFiveSigma);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(spread.node_hit[i], nodes[i], kFiveSigma);
  }
  EXPECT_NEAR(std::accumulate(spread.copies.begin(), spread.copies.end(), 0.0), 4.0, 1e-7);
  EXPECT_EQ(spread.copies[2], 0.0);
  EXPECT_EQ(spread.rank_hit[2], 0.0);
}

TEST(Routing, RefusesWhatMakesNoSense) {
  const std::vector<std::int64_t> group = {0};
  EXPECT_THROW(static_cast<void>(hit_probability({0, 1}, group)), Error);
  EXPECT_THROW(static_cast<void>(hit_probability({4, 0}, group)), Error);
  EXPECT_THROW(static_cast<void>(hit_probability({4, 5}, group)), Error);
  EXPECT_THROW(static_cast<void>(hit_probability({2, 1, {1.0}}, group)), Error);
  EXPECT_THROW(static_cast<void>(hit_probability({2, 1, {1.0, 0.0}}, group)), Error);
  EXPECT_THROW(static_cast<void>(hit_probability({2, 1, {1.0, std::nan("")}}, group)), Error);
  EXPECT_THROW(static_cast<void>(hit_probability({2, 1}, std::vector<std::int64_t>{2})), Error);
  EXPECT_THROW(static_cast<void>(hit_probability({2, 1}, std::vector<std::int64_t>{1, 1})), Error);
  EXPECT_THROW(static_cast<void>(expected_spread({2, 1}, std::vector<int>{0, 1}, std::vector<int>{0})),
               Error);
  EXPECT_THROW(static_cast<void>(expected_spread({2, 1}, std::vector<int>{0}, std::vector<int>{0})), Error);
  EXPECT_THROW(static_cast<void>(expected_spread({2, 1}, std::vector<int>{0, 0}, std::vector<int>{})), Error);
  EXPECT_THROW(static_cast<void>(expected_spread({2, 1}, std::vector<int>{0, 0}, std::vector<int>{1})),
               Error);
}

}  // namespace
}  // namespace expedite::cost
