#include "expedite/kernels/memory_speed.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "expedite/base/error.h"

namespace expedite::kernels {
namespace {

TEST(MemorySpeed, IsAPositiveNumberForAnyWorkingSet) {
  for (const int threads : {1, 2}) {
    omp_set_num_threads(threads);
    for (const std::int64_t bytes : {512, 1000, 16'384, 3'000'000}) {
      const MemorySpeed speed = memory_speed(bytes, 1e-4);
      EXPECT_TRUE(std::isfinite(speed.read_bytes_per_s) && speed.read_bytes_per_s > 0.0);
      EXPECT_TRUE(std::isfinite(speed.copy_bytes_per_s) && speed.copy_bytes_per_s > 0.0);
    }
  }
  omp_set_num_threads(1);
}

TEST(MemorySpeed, RefusesLessThanAVector) {
  EXPECT_THROW(static_cast<void>(memory_speed(511, 1e-4)), Error);
  EXPECT_THROW(static_cast<void>(memory_speed(-1, 1e-4)), Error);
}

}  // namespace
}  // namespace expedite::kernels
