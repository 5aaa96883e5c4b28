#include "expedite/base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace expedite {
namespace {

TEST(Cores, AreNoMoreThanHardwareThreads) {
  const Cores cores = count_cores();
  EXPECT_GE(cores.bound, 1);
  EXPECT_LE(cores.bound, cores.machine);
  EXPECT_LE(cores.machine, static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(Cores, FollowTheBindingOfTheProcess) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const Cores cores = count_cores();
  const Processors allowed = allowed_processors();
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(cores.bound, 1);
  EXPECT_EQ(allowed.count(), 1);
  EXPECT_EQ(allowed_processors().count(), static_cast<std::size_t>(CPU_COUNT(&before)));
}

TEST(Caches, GrowWithTheirLevel) {
  const int machine = count_cores().machine;
  CacheSize before{.level = 0, .bytes = 0, .cores = 1};
  for (const CacheSize& cache : cache_sizes()) {
    EXPECT_GT(cache.level, before.level);
    EXPECT_GT(cache.bytes, before.bytes);
    EXPECT_GE(cache.cores, before.cores);
    EXPECT_LE(cache.cores, machine);
    before = cache;
  }
}

}  // namespace
}  // namespace expedite
