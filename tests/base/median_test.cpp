#include "expedite/base/median.h"

#include <gtest/gtest.h>

#include "expedite/base/error.h"

namespace expedite {
namespace {

TEST(Median, IsTheMiddleOneOrTheUpperOfTwo) {
  EXPECT_EQ(median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(median({4.0, 1.0, 3.0, 2.0}), 3.0);
  EXPECT_EQ(median({7.0}), 7.0);
  EXPECT_THROW(static_cast<void>(median({})), Error);
}

TEST(MiddleMean, LeavesOutASixthAtEachEnd) {
  EXPECT_EQ(middle_mean({100.0, 2.0, 3.0, 1.0, 4.0, -50.0}), 2.5);
  EXPECT_EQ(middle_mean({5.0, 1.0, 3.0}), 3.0) << "of few, none";
  EXPECT_EQ(middle_mean({7.0}), 7.0);
  EXPECT_THROW(static_cast<void>(middle_mean({})), Error);
}

}  // namespace
}  // namespace expedite
