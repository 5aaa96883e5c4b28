#include "expedite/train/stop_signal.h"

#include <gtest/gtest.h>

#include <csignal>

#include "expedite/base/error.h"

namespace expedite::train {
namespace {

int seen = 0;
void remember(int number) {
  seen = number;
}

TEST(StopSignal, IsSetByEachOfItsSignals) {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {
    const StopSignal stop;
    EXPECT_FALSE(stop.requested());
    std::raise(number);
    EXPECT_TRUE(stop.requested());
    EXPECT_EQ(stop.signal(), number);
  }
}

TEST(StopSignal, KeepsTheFirst) {
  const StopSignal stop;
  std::raise(SIGUSR1);
  std::raise(SIGTERM);
  EXPECT_EQ(stop.signal(), SIGUSR1);
}

TEST(StopSignal, RepeatedStopsAreHarmlessBeforeAndAfter) {
  const auto previous = std::signal(SIGUSR1, SIG_DFL);
  ignore_repeated_stops();
  std::raise(SIGUSR1);
  {
    const StopSignal stop;
    EXPECT_FALSE(stop.requested());
    std::raise(SIGUSR1);
    EXPECT_TRUE(stop.requested());
  }
  std::raise(SIGUSR1);
  std::signal(SIGUSR1, previous);
}

TEST(StopSignal, RestoresTheHandlersThereWere) {
  seen = 0;
  const auto previous = std::signal(SIGTERM, remember);
  {
    const StopSignal stop;
    std::raise(SIGTERM);
    EXPECT_EQ(seen, 0);
  }
  std::raise(SIGTERM);
  EXPECT_EQ(seen, SIGTERM);
  std::signal(SIGTERM, previous);
}

TEST(StopSignal, IsOneAtATime) {
  {
    const StopSignal stop;
    EXPECT_THROW(const StopSignal second, Error);
    std::raise(SIGUSR1);
    EXPECT_TRUE(stop.requested());
  }
  const StopSignal again;
  EXPECT_FALSE(again.requested());
}

TEST(StopSignalDeathTest, LetsASecondInterruptThrough) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const StopSignal stop;
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace expedite::train
