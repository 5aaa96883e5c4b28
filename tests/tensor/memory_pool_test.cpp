#include "expedite/tensor/memory_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "expedite/tensor/arena.h"

namespace expedite {
namespace {

TEST(MemoryPool, CountsCurrentAndPeakByCategory) {
  MemoryPool pool;
  {
    const Buffer weights = pool.allocate(1000, MemoryCategory::weights);
    const Buffer activations = pool.allocate(500, MemoryCategory::activations);
    EXPECT_EQ(pool.current_bytes(MemoryCategory::weights), 1000);
    EXPECT_EQ(pool.current_bytes(), 1500);
  }
  const Buffer later = pool.allocate(700, MemoryCategory::activations);
  EXPECT_EQ(pool.current_bytes(MemoryCategory::weights), 0);
  EXPECT_EQ(pool.peak_bytes(MemoryCategory::weights), 1000);
  EXPECT_EQ(pool.peak_bytes(MemoryCategory::activations), 700);
  EXPECT_EQ(pool.peak_bytes(), 1500) << "the peak of the sum, not the sum of the peaks";
  pool.reset_peaks();
  EXPECT_EQ(pool.peak_bytes(), 700);
  EXPECT_EQ(pool.peak_bytes(MemoryCategory::weights), 0);
}

TEST(MemoryPool, HandsOutCachedBlocksAgain) {
  MemoryPool pool;
  void* first = nullptr;
  {
    const Buffer buffer = pool.allocate(100'000, MemoryCategory::workspace);
    first = buffer.data();
  }
  const std::int64_t reserved = pool.reserved_bytes();
  const Buffer again = pool.allocate(99'000, MemoryCategory::activations);
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(pool.reserved_bytes(), reserved);
}

TEST(MemoryPool, TrimGivesCachedBlocksBack) {
  MemoryPool pool;
  const Buffer kept = pool.allocate(5000, MemoryCategory::workspace);
  { const Buffer dropped = pool.allocate(1'000'000, MemoryCategory::workspace); }
  pool.trim();
  EXPECT_LT(pool.reserved_bytes(), 1'000'000);
  EXPECT_GE(pool.reserved_bytes(), 5000);
}

TEST(MemoryPool, WastesLittleAndAligns) {
  MemoryPool pool;
  for (std::int64_t bytes = 5000; bytes < 3'000'000; bytes = bytes * 5 / 4 + 1) {
    const std::int64_t before = pool.reserved_bytes();
    const Buffer buffer = pool.allocate(bytes, MemoryCategory::workspace);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % MemoryPool::kAlignment, 0U);
    const std::int64_t taken = pool.reserved_bytes() - before;
    EXPECT_LE(taken, bytes + bytes / 8 + MemoryPool::kAlignment);
    std::memset(buffer.data(), 1, static_cast<std::size_t>(bytes));
  }
}

TEST(MemoryPool, ZeroBytesAreLegalAndNonsenseIsNot) {
  MemoryPool pool;
  const Buffer nothing = pool.allocate(0, MemoryCategory::communication);
  EXPECT_EQ(nothing.bytes(), 0);
  EXPECT_TRUE(nothing);
  EXPECT_THROW(static_cast<void>(pool.allocate(-1, MemoryCategory::workspace)), Error);
  EXPECT_THROW(static_cast<void>(pool.allocate(std::int64_t{1} << 60, MemoryCategory::workspace)), Error);
}

TEST(MemoryPool, MovedBuffersReturnOnce) {
  MemoryPool pool;
  Buffer a = pool.allocate(100, MemoryCategory::workspace);
  Buffer b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): that it is empty is the point
  a = std::move(b);
  a = pool.allocate(200, MemoryCategory::gradients);
  EXPECT_EQ(pool.current_bytes(MemoryCategory::workspace), 0);
  EXPECT_EQ(pool.current_bytes(), 200);
}

TEST(MemoryPool, IsThreadSafe) {
  MemoryPool pool;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&pool, seed] {
      std::mt19937 random(seed);
      std::vector<Buffer> held(8);
      for (int i = 0; i < 2000; ++i) {
        Buffer& slot = held[random() % held.size()];
        slot = pool.allocate(static_cast<std::int64_t>(random() % 20000), MemoryCategory::workspace);
        if (slot.bytes() > 0) {
          static_cast<char*>(slot.data())[slot.bytes() - 1] = 1;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(pool.current_bytes(), 0);
}

TEST(Buffer, ViewsMustFit) {
  MemoryPool pool;
  const Buffer buffer = pool.allocate(64, MemoryCategory::workspace);
  EXPECT_EQ(buffer.view(DType::f32, {4, 4}).elements(), 16);
  EXPECT_THROW(static_cast<void>(buffer.view(DType::f32, {4, 5})), Error);
  EXPECT_THROW(static_cast<void>(buffer.view(DType::f32, {4, 4}, 4)), Error);
}

TEST(Arena, MeasuresWhatItLaysOut) {
  const auto lay_out = [](Arena& arena) {
    return std::vector<TensorView>{arena.take(DType::bf16, {3, 5}), arena.take(DType::f32, {0, 7}),
                                   arena.take(DType::i64, {2})};
  };
  Arena measuring;
  static_cast<void>(lay_out(measuring));
  MemoryPool pool;
  Buffer buffer = pool.allocate(measuring.used(), MemoryCategory::activations);
  Arena arena(buffer);
  const std::vector<TensorView> views = lay_out(arena);
  EXPECT_EQ(arena.used(), measuring.used());
  EXPECT_EQ(views[0].data(), buffer.data());
  EXPECT_EQ(static_cast<std::byte*>(views[2].data()) - static_cast<std::byte*>(buffer.data()), 64);
  EXPECT_THROW(static_cast<void>(arena.take(DType::f32, {100})), Error);
}

}  // namespace
}  // namespace expedite
