#include "expedite/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace expedite {
namespace {

// Known answers of Philox4x32-10, from the Random123 distribution's kat_vectors.
TEST(Philox, MatchesTheKnownAnswers) {
  using Block = std::array<std::uint32_t, 4>;
  EXPECT_EQ(Philox(0, 0).block(0), (Block{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(Philox(~0ULL, ~0ULL).block(~0ULL), (Block{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(Philox(0x299F31D0A4093822ULL, 0x0370734413198A2EULL).block(0x85A308D3243F6A88ULL),
            (Block{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(Philox, DrawsTheDistributionsItNames) {
  const Philox random(7, 11);
  constexpr int kDraws = 200000;
  double sum = 0.0;
  double normal_sum = 0.0;
  double normal_squares = 0.0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = random.uniform(static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    const double n = random.normal(static_cast<std::uint64_t>(i));
    ASSERT_TRUE(std::isfinite(n));
    normal_sum += n;
    normal_squares += n * n;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
  EXPECT_NEAR(normal_sum / kDraws, 0.0, 0.01);
  EXPECT_NEAR(normal_squares / kDraws, 1.0, 0.02);
}

TEST(Philox, StreamsAndSeedsDiffer) {
  EXPECT_NE(Philox(1, 2).bits(0), Philox(1, 3).bits(0));
  EXPECT_NE(Philox(1, 2).bits(0), Philox(2, 2).bits(0));
  EXPECT_NE(stream_of("lm_head.weight"), stream_of("model.norm.weight"));
}

TEST(PermutedIndex, IsAPermutation) {
  for (const std::uint64_t n : {1ULL, 2ULL, 3ULL, 16ULL, 17ULL, 1000ULL}) {
    for (const std::uint64_t key : {0ULL, 1ULL, 99ULL}) {
      std::vector<int> seen(n, 0);
      for (std::uint64_t i = 0; i < n; ++i) {
        const std::uint64_t image = permuted_index(i, n, key);
        ASSERT_LT(image, n);
        ++seen[image];
      }
      for (const int times : seen) {
        EXPECT_EQ(times, 1);
      }
    }
  }
}

TEST(PermutedIndex, DependsOnTheKey) {
  int same = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    same += permuted_index(i, 1000, 1) == permuted_index(i, 1000, 2) ? 1 : 0;
  }
  EXPECT_LT(same, 20);
}

}  // namespace
}  // namespace expedite
