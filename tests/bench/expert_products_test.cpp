#include "bench/expert_products.h"

#include <gtest/gtest.h>

#include <cmath>

namespace expedite::bench {
namespace {

TEST(ExpertProducts, RunAnyRows) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool training : {false, true}) {
      for (const std::vector<std::int64_t>& counts : {std::vector<std::int64_t>{5, 0, 33}, {1}, {0, 0}, {}}) {
        ExpertProducts products({.hidden = 24, .ffn = 8, .dtype = dtype}, counts, training);
        const bool any = counts.size() == 3 || counts.size() == 1;
        for (int repeat = 0; repeat < 3; ++repeat) {
          const double seconds = products.sample();
          EXPECT_TRUE(std::isfinite(seconds));
          EXPECT_EQ(seconds > 0.0, any);
        }
      }
    }
  }
}

}  // namespace
}  // namespace expedite::bench
