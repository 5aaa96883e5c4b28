#include "expedite/train/lr_schedule.h"

#include <gtest/gtest.h>

namespace expedite::train {
namespace {

constexpr LrSchedule kSchedule = {.lr = 1.0, .min_lr = 0.1, .warmup_steps = 4, .steps = 15};

TEST(LrSchedule, WarmsUpLinearlyWithoutAStepAtZero) {
  EXPECT_DOUBLE_EQ(learning_rate(kSchedule, 0), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(kSchedule, 1), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(kSchedule, 3), 1.0);
}

TEST(LrSchedule, DecaysAsHalfACosine) {
  EXPECT_DOUBLE_EQ(learning_rate(kSchedule, 4), 1.0);
  EXPECT_NEAR(learning_rate(kSchedule, 9), 0.55, 1e-12);  // half way
  EXPECT_NEAR(learning_rate(kSchedule, 14), 0.1, 1e-12);
  for (std::int64_t step = 4; step < 14; ++step) {
    EXPECT_GT(learning_rate(kSchedule, step), learning_rate(kSchedule, step + 1));
  }
}

TEST(LrSchedule, StaysAtTheFloorAfterTheEnd) {
  EXPECT_DOUBLE_EQ(learning_rate(kSchedule, 1000), 0.1);
}

TEST(LrSchedule, NeedsNoWarmUp) {
  EXPECT_DOUBLE_EQ(learning_rate({.lr = 2.0, .min_lr = 0.0, .warmup_steps = 0, .steps = 10}, 0), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate({.lr = 2.0, .min_lr = 0.0, .warmup_steps = 0, .steps = 1}, 0), 2.0);
}

TEST(LrSchedule, MayEndInsideTheWarmUp) {
  const LrSchedule schedule = {.lr = 1.0, .min_lr = 0.1, .warmup_steps = 10, .steps = 5};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 4), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 9), 1.0);
}

}  // namespace
}  // namespace expedite::train
