#include "expedite/cost/kernel_times.h"

#include <gtest/gtest.h>

#include <array>

#include "expedite/base/error.h"

namespace expedite::cost {
namespace {

/// 3 m^2 n seconds at every point.
KernelTimes power_law() {
  KernelTimes times{.kernel = "test", .axes = {{"m", {1, 4, 32}}, {"n", {2, 10}}}};
  for (const double m : {1.0, 4.0, 32.0}) {
    for (const double n : {2.0, 10.0}) {
      times.seconds.push_back(3.0 * m * m * n);
    }
  }
  return times;
}

TEST(KernelTimes, PowersOfSizesAreExactBetweenPointsAndOutside) {
  const KernelTimes times = power_law();
  for (const double m : {0.5, 1.0, 3.0, 4.0, 7.0, 32.0, 100.0}) {
    for (const double n : {1.0, 2.0, 5.0, 10.0, 40.0}) {
      EXPECT_NEAR(seconds_at(times, std::array{m, n}), 3.0 * m * m * n, 1e-9 * m * m * n) << m << " " << n;
    }
  }
}

TEST(KernelTimes, MoreThanTheLastSizeTakesAtLeastLongerInProportion) {
  const KernelTimes flat{.kernel = "test", .axes = {{"rows", {16, 64}}}, .seconds = {1.0, 1.0}};
  EXPECT_DOUBLE_EQ(seconds_at(flat, std::array{8.0}), 1.0);
  EXPECT_DOUBLE_EQ(seconds_at(flat, std::array{32.0}), 1.0);
  EXPECT_NEAR(seconds_at(flat, std::array{256.0}), 4.0, 1e-12);
}

TEST(KernelTimes, OnePointIsInProportionAndNothingTakesNoTime) {
  const KernelTimes one{.kernel = "test", .axes = {{"rows", {100}}}, .seconds = {2.0}};
  EXPECT_NEAR(seconds_at(one, std::array{25.0}), 0.5, 1e-12);
  EXPECT_EQ(seconds_at(one, std::array{0.0}), 0.0);
}

TEST(KernelTimes, RefusesSizesThatAreNone) {
  EXPECT_THROW(static_cast<void>(seconds_at(power_law(), std::array{1.0})), Error);
  EXPECT_THROW(static_cast<void>(seconds_at(power_law(), std::array{1.0, -2.0})), Error);
}

}  // namespace
}  // namespace expedite::cost
