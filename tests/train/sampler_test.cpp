#include "expedite/train/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "expedite/base/error.h"

namespace expedite::train {
namespace {

std::vector<Window> draw(const TrainSampler& sampler, std::int64_t batch, std::int64_t first,
                         std::int64_t count) {
  std::vector<Window> windows;
  for (std::int64_t i = first; i < first + count; ++i) {
    windows.push_back(sampler.sequence(i / batch, i % batch));
  }
  return windows;
}

TEST(TrainSampler, CoversEachEpochWithoutOverlap) {
  for (const std::int64_t tokens : {2, 9, 10, 11, 100, 1003}) {
    for (const std::int64_t length : {1, 7, 9, 10}) {
      const TrainSampler sampler(tokens, length, 3, 42);
      const std::int64_t windows = sampler.windows_per_epoch();
      const std::int64_t actual = std::min(length, tokens - 1);
      EXPECT_EQ(windows, std::max<std::int64_t>(1, (tokens - 1) / actual - 1));
      for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
        std::set<std::int64_t> targets;
        for (const Window& window : draw(sampler, 3, epoch * windows, windows)) {
          EXPECT_EQ(window.length, actual);
          EXPECT_GE(window.begin, 0);
          EXPECT_LE(window.begin + window.length, tokens - 1);  // the last target is a token
          for (std::int64_t t = 1; t <= window.length; ++t) {
            EXPECT_TRUE(targets.insert(window.begin + t).second);
          }
        }
        EXPECT_EQ(static_cast<std::int64_t>(targets.size()), windows * actual);
      }
    }
  }
}

TEST(TrainSampler, ReachesEveryTokenOverEpochs) {
  constexpr std::int64_t kTokens = 100;
  const TrainSampler sampler(kTokens, 10, 4, 1);
  std::set<std::int64_t> targets;
  for (const Window& window : draw(sampler, 4, 0, 200 * sampler.windows_per_epoch())) {
    for (std::int64_t t = 1; t <= window.length; ++t) {
      targets.insert(window.begin + t);
    }
  }
  EXPECT_EQ(targets.size(), kTokens - 1);
}

TEST(TrainSampler, DoesNotDependOnHowTheGlobalBatchIsCut) {
  // The n-th sequence of the run is the same for any batch size, hence for any number of ranks that share a
  // batch.
  const TrainSampler of_four(1000, 8, 4, 5);
  const TrainSampler of_six(1000, 8, 6, 5);
  EXPECT_EQ(draw(of_four, 4, 0, 600), draw(of_six, 6, 0, 600));
}

TEST(TrainSampler, ChangesOrderAndOffsetWithSeedAndEpoch) {
  const TrainSampler one(10'000, 16, 1, 1);
  const TrainSampler two(10'000, 16, 1, 2);
  const std::int64_t windows = one.windows_per_epoch();
  const auto first = draw(one, 1, 0, windows);
  EXPECT_EQ(first, draw(TrainSampler(10'000, 16, 1, 1), 1, 0, windows));
  EXPECT_NE(first, draw(two, 1, 0, windows));
  EXPECT_NE(first, draw(one, 1, windows, windows));
  EXPECT_FALSE(std::ranges::is_sorted(first, {}, &Window::begin));
  std::set<std::int64_t> offsets;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    offsets.insert(one.sequence(epoch * windows, 0).begin % 16);
  }
  EXPECT_GT(offsets.size(), 5U);
}

TEST(TrainSampler, CountsEpochs) {
  const TrainSampler sampler(101, 10, 3, 1);
  ASSERT_EQ(sampler.windows_per_epoch(), 9);
  EXPECT_DOUBLE_EQ(sampler.epochs_after(2), 1.0);
}

TEST(TrainSampler, RefusesWhatItCannotDraw) {
  EXPECT_THROW(TrainSampler(1, 8, 1, 0), Error);
  EXPECT_THROW(TrainSampler(0, 8, 1, 0), Error);
  EXPECT_THROW(TrainSampler(100, 0, 1, 0), Error);
  EXPECT_THROW(TrainSampler(100, 8, 0, 0), Error);
  const TrainSampler sampler(100, 8, 2, 0);
  EXPECT_THROW(static_cast<void>(sampler.sequence(0, 2)), Error);
  EXPECT_THROW(static_cast<void>(sampler.sequence(-1, 0)), Error);
}

TEST(ValidationWindows, CoverEveryTargetOnceInOrder) {
  for (const std::int64_t tokens : {0, 1, 2, 8, 9, 10, 17, 1000}) {
    std::int64_t next = 1;  // target
    for (const Window& window : validation_windows(tokens, 8)) {
      EXPECT_EQ(window.begin + 1, next);
      EXPECT_GT(window.length, 0);
      EXPECT_LE(window.length, 8);
      next += window.length;
    }
    EXPECT_EQ(next, std::max<std::int64_t>(tokens, 1));
  }
}

TEST(ValidationWindows, SpreadALimitedNumberEvenly) {
  const auto windows = validation_windows(1001, 10, 4);
  EXPECT_EQ(windows, (std::vector<Window>{{0, 10}, {250, 10}, {500, 10}, {750, 10}}));
  EXPECT_EQ(validation_windows(1001, 10, 1000), validation_windows(1001, 10));
}

}  // namespace
}  // namespace expedite::train
