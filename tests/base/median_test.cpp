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

}  // namespace
}  // namespace expedite
