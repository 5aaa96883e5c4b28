#include "expedite/plan/expert_reach.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace expedite::plan {
namespace {

/// Tokens drawn one by one: experts without return, with probability in proportion to what is left of the
/// weights.
class Draws {
 public:
  Draws(std::vector<double> weights, std::int64_t topk, unsigned seed)
      : weights_(std::move(weights)), topk_(topk), random_(seed) {}

  std::vector<int> token() {
    std::vector<double> left = weights_;
    std::vector<int> chosen;
    for (std::int64_t i = 0; i < topk_; ++i) {
      std::discrete_distribution<int> next(left.begin(), left.end());
      chosen.push_back(next(random_));
      left[static_cast<std::size_t>(chosen.back())] = 0.0;
    }
    return chosen;
  }

  std::mt19937_64& random() { return random_; }

 private:
  std::vector<double> weights_;
  std::int64_t topk_;
  std::mt19937_64 random_;
};

/// Mean over `steps` of the busiest rank's rows over the mean, of `tokens` tokens per rank.
double busiest(Draws& draws, int experts, int ep, int tokens, int topk, int steps, bool shuffled) {
  std::vector<int> place(static_cast<std::size_t>(experts));
  std::iota(place.begin(), place.end(), 0);
  double sum = 0.0;
  for (int step = 0; step < steps; ++step) {
    if (shuffled) {
      std::shuffle(place.begin(), place.end(), draws.random());
    }
    std::vector<int> rows(static_cast<std::size_t>(ep), 0);
    for (int token = 0; token < tokens * ep; ++token) {
      for (const int expert : draws.token()) {
        ++rows[static_cast<std::size_t>(place[static_cast<std::size_t>(expert)] * ep / experts)];
      }
    }
    sum += *std::max_element(rows.begin(), rows.end()) / static_cast<double>(tokens * topk);
  }
  return sum / steps;
}

const ExpertReach& of(const std::vector<ExpertReach>& reaches, std::int64_t ep) {
  return *std::ranges::find(reaches, ep, &ExpertReach::ep);
}

TEST(ExpertReach, OfAnEvenRouterIsWhatChanceMakesOfIt) {
  for (const auto [experts, topk, ep] :
       {std::array{16, 2, 2}, std::array{16, 2, 16}, std::array{32, 8, 8}, std::array{32, 16, 4}}) {
    const auto reaches = expert_reaches({.experts = experts, .topk = topk}, true, ep, 8);
    for (const int tokens : {16, 100}) {
      Draws draws(std::vector<double>(static_cast<std::size_t>(experts), 1.0), topk, 3);
      const double drawn = busiest(draws, experts, ep, tokens, topk, 300, false);
      const double predicted = of(reaches, ep).busiest_of(tokens * topk);
      EXPECT_NEAR(predicted - 1.0, drawn - 1.0, 0.12 * (drawn - 1.0)) << experts << " " << topk << " " << ep;
    }
  }
}

TEST(ExpertReach, OfMeasuredLoadsKeepsExpertsWhereTheyAre) {
  std::vector<double> weights = cost::zipf_weights(32, 0.8);
  const auto reaches = expert_reaches({.experts = 32, .topk = 4, .weights = weights}, true, 8, 8);
  Draws draws(weights, 4, 5);
  const double drawn = busiest(draws, 32, 8, 400, 4, 20, false);
  EXPECT_NEAR(of(reaches, 8).busiest, drawn, 0.02 * drawn);
  // The heaviest four experts are neighbours here: placed one on each rank they would weigh less.
  std::vector<double> dealt(32);
  for (std::size_t i = 0; i < 32; ++i) {
    dealt[i % 8 * 4 + i / 8] = weights[i];
  }
  const auto dealt_out = expert_reaches({.experts = 32, .topk = 4, .weights = dealt}, true, 8, 8);
  EXPECT_LT(of(dealt_out, 8).busiest, 0.8 * of(reaches, 8).busiest);
  EXPECT_GT(of(dealt_out, 8).ranks, of(reaches, 8).ranks);
}

TEST(ExpertReach, OfLoadsInUnknownOrderIsTheMeanOverOrders) {
  for (const double exponent : {0.3, 1.0}) {
    const std::vector<double> weights = cost::zipf_weights(32, exponent);
    const auto reaches = expert_reaches({.experts = 32, .topk = 4, .weights = weights}, false, 32, 8);
    for (const int ep : {2, 8, 32}) {
      Draws draws(weights, 4, 7);
      const double drawn = busiest(draws, 32, ep, 60, 4, 200, true);
      EXPECT_NEAR(of(reaches, ep).busiest_of(60 * 4), drawn, 0.05 * drawn) << exponent << " " << ep;
    }
  }
}

TEST(ExpertReach, CountsRanksAndNodes) {
  const auto reaches = expert_reaches({.experts = 64, .topk = 4}, true, 1024, 4);
  EXPECT_EQ(of(reaches, 1).ranks, 1.0);
  EXPECT_EQ(of(reaches, 1).busiest_of(100.0), 1.0);
  EXPECT_NEAR(of(reaches, 64).ranks, 4.0, 1e-12);
  EXPECT_EQ(of(reaches, 4).nodes, 1.0);
  const double missed = 48.0 / 64 * 47.0 / 63 * 46.0 / 62 * 45.0 / 61;
  EXPECT_NEAR(of(reaches, 16).nodes, 4.0 * (1.0 - missed), 1e-12);
  EXPECT_EQ(reaches.size(), 7);
}

}  // namespace
}  // namespace expedite::plan
