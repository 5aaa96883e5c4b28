#include "expedite/base/urgent_thread.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

namespace expedite {
namespace {

int nice_value() {
  return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
}

TEST(UrgentThread, GoesBeforeOthersWhileItLivesWhereTheSystemAllows) {
  const int before = nice_value();
  {
    const UrgentThread urgent;
    if (urgent.raised()) {
      EXPECT_LT(nice_value(), before);
    } else {
      EXPECT_EQ(nice_value(), before);
    }
  }
  EXPECT_EQ(nice_value(), before);
}

TEST(UrgentThread, LeavesOtherThreadsAsTheyAre) {
  const int before = nice_value();
  std::thread([before] {
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), before + 1);
    const UrgentThread urgent;
    if (urgent.raised()) {
      EXPECT_LT(nice_value(), before + 1);
    }
  }).join();
  EXPECT_EQ(nice_value(), before);
}

}  // namespace
}  // namespace expedite
