#include "expedite/base/urgent_thread.h"

#include <gtest/gtest.h>

#include <future>

namespace expedite {
namespace {

constexpr int kThisThread = 0;

TEST(UrgentThread, IsRaisedWhileItLivesWhereTheSystemAllows) {
  const int before = sched_getscheduler(kThisThread);
  {
    const UrgentThread urgent;
    EXPECT_EQ(sched_getscheduler(kThisThread), urgent.raised() ? SCHED_FIFO : before);
    const UrgentThread again;
    EXPECT_FALSE(urgent.raised() && again.raised()) << "it is urgent already";
  }
  EXPECT_EQ(sched_getscheduler(kThisThread), before);
}

TEST(UrgentThread, LeavesOtherThreadsAsTheyAre) {
  const int before = sched_getscheduler(kThisThread);
  std::promise<void> raised;
  std::promise<void> seen;
  std::future<void> done = std::async(std::launch::async, [&] {
    const UrgentThread urgent;
    raised.set_value();
    seen.get_future().wait();
  });
  raised.get_future().wait();
  EXPECT_EQ(sched_getscheduler(kThisThread), before);
  seen.set_value();
  done.get();
}

}  // namespace
}  // namespace expedite
