#include "expedite/train/stop_signal.h"

#include <gtest/gtest.h>
#include <unistd.h>

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
  std::raise(SIGTERM);
  std::raise(SIGUSR1);
  std::raise(SIGUSR1);
  EXPECT_EQ(stop.signal(), SIGTERM);
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

TEST(StopSignalDeathTest, LetsASecondOneThrough) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const int number : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          const StopSignal stop;
          std::raise(SIGUSR1);
          std::raise(number);
        },
        testing::KilledBySignal(number), "stopping: the step under way");
  }
}

TEST(StopSignalDeathTest, EndsWhatDoesNotStopWithinTheLimit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        StopSignal stop({.rank = 2, .ranks = 4});
        stop.set_limit(1);
        std::raise(SIGTERM);
        while (true) {
          pause();
        }
      },
      testing::ExitedWithCode(1),
      R"(\[rank 2\] stopping: .* \(within 1 s\).*\n.*\[rank 2\] the step did not end within 1 s)");
}

TEST(StopSignal, HasNoLimitOnceTheStepHasEnded) {
  StopSignal stop;
  stop.set_limit(100);
  std::raise(SIGTERM);
  stop.wait_is_over();
  EXPECT_EQ(alarm(0), 0U);
}

TEST(StopSignal, OnlyRankZeroAnswersWhatAllRanksGet) {
  for (const int rank : {0, 1}) {
    testing::internal::CaptureStderr();
    {
      const StopSignal stop({.rank = rank, .ranks = 2, .what = "the comparison ends"});
      std::raise(SIGUSR1);
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              rank == 0 ? "info: [rank 0] stopping: the comparison ends; a second signal ends this at once, "
                          "unsaved\n"
                        : "");
  }
}

}  // namespace
}  // namespace expedite::train
