// Layers on virtual stages, against all ways to cut.
#include "expedite/cost/layer_balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "expedite/base/error.h"

namespace expedite::cost {
namespace {

struct Score {
  double largest = 0.0;
  double squares = 0.0;
  auto operator<=>(const Score&) const = default;
};

Score score(const std::vector<double>& costs, const std::vector<int>& bounds) {
  Score score;
  for (std::size_t part = 0; part + 1 < bounds.size(); ++part) {
    const double sum = std::accumulate(costs.begin() + bounds[part], costs.begin() + bounds[part + 1], 0.0);
    score.largest = std::max(score.largest, sum);
    score.squares += sum * sum;
  }
  return score;
}

Score exhaustive(const std::vector<double>& costs, int parts) {
  const int items = static_cast<int>(costs.size());
  std::vector<bool> cut(static_cast<std::size_t>(items - 1), false);  // before item 1, 2, ...
  std::fill(cut.end() - (parts - 1), cut.end(), true);
  Score best{std::numeric_limits<double>::infinity(), 0.0};
  do {
    std::vector<int> bounds = {0};
    for (int item = 1; item < items; ++item) {
      if (cut[static_cast<std::size_t>(item - 1)]) {
        bounds.push_back(item);
      }
    }
    bounds.push_back(items);
    best = std::min(best, score(costs, bounds));
  } while (std::next_permutation(cut.begin(), cut.end()));
  return best;
}

TEST(LayerBalance, EqualsExhaustiveSearch) {
  std::mt19937 random(11);
  for (int round = 0; round < 400; ++round) {
    const int items = 1 + static_cast<int>(random() % 11);
    const int parts = 1 + static_cast<int>(random() % static_cast<unsigned>(items));
    std::vector<double> costs;
    for (int item = 0; item < items; ++item) {
      costs.push_back(static_cast<double>(random() % 12));
    }
    const std::vector<int> bounds = balanced_bounds(costs, parts);
    ASSERT_EQ(bounds.front(), 0);
    ASSERT_EQ(bounds.back(), items);
    ASSERT_EQ(std::ranges::adjacent_find(bounds, std::greater_equal<>()), bounds.end());
    const Score found = score(costs, bounds);
    const Score best = exhaustive(costs, parts);
    EXPECT_EQ(found.largest, best.largest);
    EXPECT_EQ(found.squares, best.squares);
  }
}

// Three cheap dense layers share a part; the head, as dear as two layers, stands alone.
TEST(LayerBalance, WeighsUnlikeLayersByCost) {
  const std::vector<double> costs = {0, 1, 1, 1, 3, 3, 3, 6};
  EXPECT_EQ(balanced_bounds(costs, 3), (std::vector<int>{0, 5, 7, 8}));
  EXPECT_EQ(balanced_bounds(costs, 1), (std::vector<int>{0, 8}));
  EXPECT_EQ(balanced_bounds(costs, 8), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(LayerBalance, RejectsWhatCannotBeCut) {
  const std::vector<double> costs = {1, 2};
  EXPECT_THROW((void)balanced_bounds(costs, 3), Error);
  EXPECT_THROW((void)balanced_bounds(costs, 0), Error);
  EXPECT_THROW((void)balanced_bounds(std::vector<double>{1, -1}, 1), Error);
  EXPECT_THROW((void)balanced_bounds(std::vector<double>{std::numeric_limits<double>::quiet_NaN()}, 1),
               Error);
}

}  // namespace
}  // namespace expedite::cost
