// Row exchanges, metadata and sums against what they should be, computed locally from the same random
// numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "expedite/base/error.h"
#include "expedite/base/random.h"
#include "expedite/comm/collectives.h"
#include "expedite/comm/metadata_gather.h"
#include "expedite/comm/paced_sends.h"
#include "expedite/comm/reduce.h"
#include "expedite/comm/row_exchange.h"

namespace expedite::comm {
namespace {

/// Who sends how many rows to whom in one trial; every rank computes the same.
class Traffic {
 public:
  enum class Shape : std::uint8_t { even, uneven, empty, one_sender, one_receiver };

  Traffic(int ranks, std::uint64_t trial) : ranks_(ranks), random_(trial, stream_of("traffic")) {
    shape_ = static_cast<Shape>(random_.bits(1'000'000) % 5);
  }

  [[nodiscard]] std::int64_t rows(int from, int to) const {
    const std::uint64_t bits = random_.bits(static_cast<std::uint64_t>(from * ranks_ + to));
    switch (shape_) {
      case Shape::even:
        return 16;
      case Shape::uneven:
        return bits % 4 == 0 ? 0 : static_cast<std::int64_t>(bits % 200);
      case Shape::empty:
        return 0;
      case Shape::one_sender:
        return from == 0 ? static_cast<std::int64_t>(bits % 3000) : 0;
      case Shape::one_receiver:
        return to == ranks_ - 1 ? static_cast<std::int64_t>(bits % 3000) : 0;
    }
    return 0;
  }
  /// The first byte of what goes from one rank to another; byte i is 131 i more.
  [[nodiscard]] std::uint8_t first_byte(int from, int to) const {
    return static_cast<std::uint8_t>(random_.bits(static_cast<std::uint64_t>(from * ranks_ + to)));
  }

 private:
  int ranks_;
  Philox random_;
  Shape shape_;
};

struct Side {
  std::vector<std::int64_t> rows;
  std::vector<std::uint8_t> bytes;
};

// What `rank` sends (or receives), one peer after the other.
Side side_of(const Traffic& traffic, int ranks, int rank, std::int64_t row_bytes, bool sends) {
  Side side;
  for (int peer = 0; peer < ranks; ++peer) {
    const int from = sends ? rank : peer;
    const int to = sends ? peer : rank;
    side.rows.push_back(traffic.rows(from, to));
    std::uint8_t byte = traffic.first_byte(from, to);
    for (std::int64_t i = 0; i < side.rows.back() * row_bytes; ++i) {
      side.bytes.push_back(byte);
      byte = static_cast<std::uint8_t>(byte + 131);
    }
  }
  return side;
}

TEST(RowExchange, BringsEveryRowToItsPlace) {
  const auto world = Communicator::world();
  std::vector<int>
      node_of;  // nodes as they might be, since a message's way does not depend on where ranks are
  for (int rank = 0; rank < world.size(); ++rank) {
    node_of.push_back(rank % 3);
  }
  for (std::uint64_t trial = 0; trial < 60; ++trial) {
    const std::int64_t row_bytes = std::array<std::int64_t, 4>{1, 6, 128, 2048}[trial % 4];
    const Traffic traffic(world.size(), trial);
    const Side src = side_of(traffic, world.size(), world.rank(), row_bytes, true);
    const Side expected = side_of(traffic, world.size(), world.rank(), row_bytes, false);
    std::vector<std::uint8_t> dst(expected.bytes.size());
    RowExchange exchange(world, {.src = src.bytes.data(),
                                 .src_rows = src.rows,
                                 .dst = dst.data(),
                                 .dst_rows = expected.rows,
                                 .row_bytes = row_bytes,
                                 .node = trial % 2 == 0 ? std::span<const int>() : node_of});
    std::int64_t to_other_nodes = 0;
    for (int peer = 0; trial % 2 != 0 && peer < world.size(); ++peer) {
      if (peer % 3 != world.rank() % 3) {
        to_other_nodes += traffic.rows(world.rank(), peer) * row_bytes;
      }
    }
    EXPECT_EQ(exchange.rows().inter_node, to_other_nodes);
    EXPECT_EQ(exchange.bytes(), static_cast<std::int64_t>(src.bytes.size()) -
                                    traffic.rows(world.rank(), world.rank()) * row_bytes);
    exchange.wait();
    EXPECT_EQ(dst, expected.bytes) << "trial " << trial;
    EXPECT_TRUE(exchange.test());
  }
}

TEST(RowExchange, RunsSeveralAtATimeOnOneCommunicator) {
  const auto world = Communicator::world();
  const auto ranks = static_cast<std::size_t>(world.size());
  constexpr std::int64_t kRows = 500;
  const std::vector<std::int64_t> rows(ranks, kRows);
  std::vector<std::vector<std::int32_t>> src;
  std::vector<std::vector<std::int32_t>> dst(3, std::vector<std::int32_t>(ranks * kRows));
  std::vector<RowExchange> exchanges;
  for (int i = 0; i < 3; ++i) {
    src.emplace_back(ranks * kRows, 10 * i + world.rank());
    exchanges.emplace_back(world, RowExchangeArgs{.src = src.back().data(),
                                                  .src_rows = rows,
                                                  .dst = dst[static_cast<std::size_t>(i)].data(),
                                                  .dst_rows = rows,
                                                  .row_bytes = sizeof(std::int32_t)});
  }
  for (std::size_t i = 3; i-- > 0;) {
    exchanges[i].wait();
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      EXPECT_EQ(dst[i][peer * kRows + kRows - 1], static_cast<std::int32_t>(10 * i + peer));
    }
  }
}

// More pieces than are under way at once, in two exchanges at a time, with a rank that comes late: those that
// wait for it are served before.
TEST(RowExchange, GoesBetweenNodesInPieces) {
  const auto world = Communicator::world();
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<int> node_of(ranks);
  std::iota(node_of.begin(), node_of.end(), 0);
  for (const std::int64_t row_bytes : {std::int64_t{1000}, 2 * PacedSends::kPieceBytes + 1}) {
    const std::int64_t count = 20 * PacedSends::kPieceBytes / row_bytes + 1;
    const std::vector<std::int64_t> rows(ranks, count);
    const auto bytes = static_cast<std::size_t>(count * row_bytes);
    const auto value = [](std::size_t from, std::size_t to, int channel, std::size_t i) {
      return static_cast<std::uint8_t>(i / 997 + 31 * from + 7 * to +
                                       101 * static_cast<std::size_t>(channel));
    };
    std::vector<std::vector<std::uint8_t>> src(2, std::vector<std::uint8_t>(ranks * bytes));
    std::vector<std::vector<std::uint8_t>> dst = src;
    const auto self = static_cast<std::size_t>(world.rank());
    if (world.rank() == world.size() - 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    std::vector<RowExchange> exchanges;
    for (int channel = 0; channel < 2; ++channel) {
      auto& sent = src[static_cast<std::size_t>(channel)];
      for (std::size_t i = 0; i < sent.size(); ++i) {
        sent[i] = value(self, i / bytes, channel, i % bytes);
      }
      exchanges.emplace_back(world, RowExchangeArgs{.src = sent.data(),
                                                    .src_rows = rows,
                                                    .dst = dst[static_cast<std::size_t>(channel)].data(),
                                                    .dst_rows = rows,
                                                    .row_bytes = row_bytes,
                                                    .node = node_of,
                                                    .channel = channel});
    }
    for (bool done = false; !done;) {
      const bool first = exchanges[0].test();
      done = exchanges[1].test() && first;
    }
    for (int channel = 0; channel < 2; ++channel) {
      const auto& arrived = dst[static_cast<std::size_t>(channel)];
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < arrived.size(); ++i) {
        wrong += arrived[i] != value(i / bytes, self, channel, i % bytes);
      }
      EXPECT_EQ(wrong, 0U) << row_bytes;
      EXPECT_EQ(exchanges[static_cast<std::size_t>(channel)].rows().inter_node,
                static_cast<std::int64_t>((ranks - 1) * bytes));
    }
  }
}

TEST(RowExchange, TakesRowsOfNoBytesAndRejectsWrongCounts) {
  const auto world = Communicator::world();
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(world.size()), 3);
  RowExchange nothing(world, {.src_rows = rows, .dst_rows = rows, .row_bytes = 0});
  EXPECT_TRUE(nothing.test());
  const std::vector<std::int64_t> too_many(rows.size() + 1, 0);
  EXPECT_THROW(RowExchange(world, {.src_rows = too_many, .dst_rows = rows, .row_bytes = 4}), Error);
  std::vector<std::int64_t> other_self(rows.size(), 0);
  EXPECT_THROW(RowExchange(world, {.src_rows = rows, .dst_rows = other_self, .row_bytes = 4}), Error);
  other_self[0] = -1;
  EXPECT_THROW(RowExchange(world, {.src_rows = other_self, .dst_rows = rows, .row_bytes = 4}), Error);
}

TEST(MetadataGather, BringsEveryRanksNumbers) {
  const auto world = Communicator::world();
  const auto ranks = static_cast<std::size_t>(world.size());
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{257}}) {
    std::vector<std::int64_t> mine(count, (std::int64_t{1} << 40) + world.rank());
    std::vector<std::int64_t> all(count * ranks, -1);
    MetadataGather gather(world, mine, all);
    mine.assign(count, 0);  // it has its own copy
    gather.wait();
    EXPECT_EQ(gather.bytes(), static_cast<std::int64_t>(8 * count * (ranks - 1)));
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i], (std::int64_t{1} << 40) + static_cast<std::int64_t>(i / count));
    }
  }
  std::vector<std::int64_t> wrong(ranks + 1);
  EXPECT_THROW(MetadataGather(world, std::span(wrong).first(1), wrong), Error);
}

template <typename T>
std::vector<T> values_of(int rank, std::size_t count, std::uint64_t seed) {
  const Philox random(seed, static_cast<std::uint64_t>(rank));
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(random.normal(i));
  }
  return values;
}

template <typename T>
void expect_sums(double tolerance) {
  const auto world = Communicator::world();
  for (const std::size_t count : {0U, 1U, 2U, 3U, 1000U, 65536U, 100'003U}) {
    for (const std::int64_t piece : {std::int64_t{256}, std::int64_t{40'000}, std::int64_t{4} << 20}) {
      if (piece < 1000 && count > 10'000) {
        continue;  // thousands of calls that prove nothing new
      }
      std::vector<double> expected(count, 0.0);
      for (int rank = 0; rank < world.size(); ++rank) {
        const auto theirs = values_of<T>(rank, count, count);
        std::transform(expected.begin(), expected.end(), theirs.begin(), expected.begin(), std::plus<>());
      }
      std::vector<T> first;
      for (int repeat = 0; repeat < 2; ++repeat) {
        auto values = values_of<T>(world.rank(), count, count);
        SumReduction sum(world, std::span<T>(values), {.piece_bytes = piece, .pieces_in_flight = 3});
        sum.wait();
        double worst = 0;
        for (std::size_t i = 0; i < count; ++i) {
          worst = std::max(worst, std::abs(static_cast<double>(values[i]) - expected[i]));
        }
        EXPECT_LE(worst, tolerance) << count << " values in pieces of " << piece;
        EXPECT_TRUE(repeat == 0 || values == first);  // the same bits every time
        first = values;
      }
      // And the same bits on every rank.
      std::vector<T> of_rank_0 = first;
      broadcast(world, std::span(of_rank_0), 0);
      EXPECT_EQ(of_rank_0, first);
    }
  }
}

TEST(SumReduction, SumsFloats) {
  expect_sums<float>(4e-6);
}
TEST(SumReduction, SumsDoubles) {
  expect_sums<double>(1e-14);
}

TEST(SumReduction, RejectsEmptyPieces) {
  const auto world = Communicator::world();
  std::vector<float> values(8);
  EXPECT_THROW(SumReduction(world, std::span(values), {.piece_bytes = 3}), Error);
  EXPECT_THROW(SumReduction(world, std::span(values), {.pieces_in_flight = 0}), Error);
}

TEST(Streams, ExchangeAndSumAtTheSameTimeOnTheirOwnCommunicators) {
  const auto world = Communicator::world();
  const auto rows_channel = world.duplicate("rows");
  const auto sums_channel = world.duplicate("sums");
  const auto ranks = static_cast<std::size_t>(world.size());
  const std::vector<std::int64_t> rows(ranks, 2000);
  const std::vector<float> src(ranks * 2000 * 16, static_cast<float>(world.rank()));
  std::vector<float> dst(src.size());
  std::vector<float> values(300'000, 1.0F);
  // Ranks start them in different orders, as streams do.
  std::optional<SumReduction> sum;
  if (world.rank() % 2 == 0) {
    sum.emplace(sums_channel, std::span(values), SumOptions{.piece_bytes = 64 << 10});
  }
  RowExchange exchange(
      rows_channel,
      {.src = src.data(), .src_rows = rows, .dst = dst.data(), .dst_rows = rows, .row_bytes = 64});
  if (!sum) {
    sum.emplace(sums_channel, std::span(values), SumOptions{.piece_bytes = 64 << 10});
  }
  Backoff backoff;
  for (bool rows_done = false, sums_done = false; !rows_done || !sums_done; backoff.sleep()) {
    rows_done = rows_done || exchange.test();
    sums_done = sums_done || sum->test();
  }
  EXPECT_EQ(values, std::vector<float>(values.size(), static_cast<float>(world.size())));
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    EXPECT_EQ(dst[peer * 2000 * 16], static_cast<float>(peer));
  }
}

}  // namespace
}  // namespace expedite::comm
