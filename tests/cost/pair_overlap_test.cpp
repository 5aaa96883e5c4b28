#include "expedite/cost/pair_overlap.h"

#include <gtest/gtest.h>

namespace expedite::cost {
namespace {

PairTimes layer(double between, double within) {
  return {.forward = {{.before = 6.0}, {.before = 5.0, .inner_first = true}},
          .backward = {{.before = 6.0}, {.before = 4.0, .after = 5.0, .inner_first = true}},
          .between = between,
          .within = within};
}

TEST(PairOverlap, HidesExchangesThatAreShorterThanTheOthersCompute) {
  EXPECT_EQ(pair_exposed(layer(0.0, 0.0)), 0.0);
  EXPECT_EQ(pair_exposed(layer(3.0, 1.0)), 0.0);
}

// There are 26 of compute and four exchanges.
TEST(PairOverlap, LeavesWhatThereIsNoComputeFor) {
  EXPECT_NEAR(pair_exposed(layer(20.0, 0.0)), 4 * 20.0 - 26.0, 1e-9);
  EXPECT_GT(pair_exposed(layer(7.0, 0.0)), 4 * 7.0 - 26.0 - 1e-9);
}

TEST(PairOverlap, IsWorseWithMoreExchangesInBackward) {
  PairTimes again = layer(5.0, 1.0);
  const double without = pair_exposed(again);
  again.backward.insert(again.backward.begin(), {{.before = 6.0}, {.before = 5.0, .inner_first = true}});
  EXPECT_GE(pair_exposed(again), without);
}

}  // namespace
}  // namespace expedite::cost
