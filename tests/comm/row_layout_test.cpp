// The arithmetic of exchanges beyond 2^31 bytes, without allocating any of them.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "expedite/base/error.h"
#include "expedite/comm/row_exchange.h"

namespace expedite::comm {
namespace {

TEST(RowLayout, PlacesPeersOneAfterTheOther) {
  const std::array<std::int64_t, 4> rows = {3, 0, 5, 1};
  const RowLayout layout = row_layout(rows, 16);
  EXPECT_EQ(layout.counts, (std::vector<int>{3, 0, 5, 1}));
  EXPECT_EQ(layout.byte_offsets, (std::vector<std::int64_t>{0, 48, 48, 128}));
  EXPECT_EQ(layout.rows, 9);
  EXPECT_EQ(layout.bytes, 144);
}

TEST(RowLayout, TakesNothing) {
  EXPECT_EQ(row_layout({}, 16).bytes, 0);
  EXPECT_EQ(row_layout(std::array<std::int64_t, 2>{0, 0}, 16).rows, 0);
  EXPECT_EQ(row_layout(std::array<std::int64_t, 2>{7, 8}, 0).bytes, 0);
}

TEST(RowLayout, CountsBytesBeyondThirtyTwoBits) {
  const std::array<std::int64_t, 3> rows = {700'000'000, 700'000'000, 700'000'000};
  const RowLayout layout = row_layout(rows, 14336);
  EXPECT_EQ(layout.byte_offsets[2], 1'400'000'000LL * 14336);
  EXPECT_EQ(layout.bytes, 2'100'000'000LL * 14336);
  EXPECT_EQ(layout.counts[2], 700'000'000);
}

TEST(RowLayout, TakesTheMostRowsAndNotOneMore) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  EXPECT_EQ(row_layout(std::array<std::int64_t, 2>{kMost - 1, 1}, 2).rows, kMost);
  for (const auto& rows : {std::array<std::int64_t, 2>{kMost, 1}, std::array<std::int64_t, 2>{0, kMost + 1},
                           std::array<std::int64_t, 2>{1, std::numeric_limits<std::int64_t>::max()}}) {
    try {
      (void)row_layout(rows, 2);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("2147483647"), std::string::npos) << error.what();
    }
  }
}

TEST(RowLayout, RejectsNegativeCountsAndUnaddressableBytes) {
  EXPECT_THROW((void)row_layout(std::array<std::int64_t, 2>{4, -1}, 2), Error);
  EXPECT_THROW((void)row_layout(std::array<std::int64_t, 1>{1}, -2), Error);
  EXPECT_THROW((void)row_layout(std::array<std::int64_t, 1>{1'000'000'000}, std::int64_t{1} << 40), Error);
}

}  // namespace
}  // namespace expedite::comm
