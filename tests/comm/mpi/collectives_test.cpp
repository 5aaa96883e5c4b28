// Communicators, the process grid, and the small collectives.
#include "expedite/comm/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "expedite/base/error.h"
#include "expedite/comm/clock.h"
#include "expedite/comm/environment.h"
#include "expedite/comm/process_grid.h"

namespace expedite::comm {
namespace {

TEST(Environment, TurnsErrorCodesIntoErrors) {
  check(MPI_SUCCESS, "MPI_Nothing");
  try {
    check(MPI_ERR_RANK, "MPI_Isend", "dispatch");
    FAIL() << "no error";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("MPI_Isend"), std::string::npos) << text;
    EXPECT_NE(text.find("dispatch"), std::string::npos) << text;
    EXPECT_NE(text.find("rank"), std::string::npos) << text;  // MPI's own words
  }
  EXPECT_THROW(MpiEnvironment(), Error);  // one per process
}

TEST(Environment, ReturnsTheErrorsOfCallsOnItsCommunicators) {
  const auto world = Communicator::world();
  const std::byte byte{0};
  EXPECT_THROW(send_bytes(world, std::span(&byte, 1), world.size()), Error);
}

TEST(Communicator, MovesAndSplits) {
  auto world = Communicator::world();
  const int rank = world.rank();
  Communicator moved = std::move(world);
  EXPECT_FALSE(world);  // NOLINT(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what a move leaves
  EXPECT_EQ(moved.rank(), rank);
  const auto parity = moved.split(rank % 2, -rank, "parity");  // in reverse order
  EXPECT_EQ(parity.size(), (moved.size() + 1 - rank % 2) / 2);
  const auto ranks = all_gather(parity, rank);
  EXPECT_TRUE(std::is_sorted(ranks.rbegin(), ranks.rend()));
  for (const int other : ranks) {
    EXPECT_EQ(other % 2, rank % 2);
  }
  world = moved.duplicate("copy");
  EXPECT_EQ(world.name(), "copy");
  EXPECT_EQ(all_reduce<std::int64_t>(world, 1, ReduceOp::sum), world.size());
}

TEST(Collectives, Reduce) {
  const auto world = Communicator::world();
  const std::int64_t n = world.size();
  const std::int64_t rank = world.rank();
  EXPECT_EQ(all_reduce(world, rank, ReduceOp::sum), n * (n - 1) / 2);
  EXPECT_EQ(all_reduce(world, rank, ReduceOp::min), 0);
  EXPECT_EQ(all_reduce(world, rank, ReduceOp::max), n - 1);
  EXPECT_EQ(all_reduce(world, 0.5 * static_cast<double>(rank), ReduceOp::max),
            0.5 * static_cast<double>(n - 1));
  std::array<double, 3> values = {1.0, static_cast<double>(rank), -1.0};
  all_reduce(world, std::span<double>(values), ReduceOp::sum);
  EXPECT_EQ(values[0], static_cast<double>(n));
  EXPECT_EQ(values[1], static_cast<double>(n * (n - 1) / 2));
  all_reduce(world, std::span<double>(), ReduceOp::sum);
  barrier(world);
}

TEST(Collectives, GatherValues) {
  const auto world = Communicator::world();
  struct Pair {
    int a;
    double b;
  };
  const auto pairs = all_gather(world, Pair{world.rank(), 0.25 * world.rank()});
  ASSERT_EQ(pairs.size(), static_cast<std::size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(pairs[static_cast<std::size_t>(rank)].a, rank);
    EXPECT_EQ(pairs[static_cast<std::size_t>(rank)].b, 0.25 * rank);
  }
  std::byte byte{};
  EXPECT_THROW(all_gather_bytes(world, {}, std::span(&byte, 1)), Error);
}

TEST(Collectives, BroadcastFromEveryRoot) {
  const auto world = Communicator::world();
  for (int root = 0; root < world.size(); ++root) {
    std::vector<std::int64_t> values(1000, world.rank() == root ? root : -1);
    broadcast(world, std::span(values), root);
    EXPECT_EQ(values, std::vector<std::int64_t>(1000, root));
    EXPECT_EQ(broadcast_text(world, world.rank() == root ? "seed 7" : "something longer", root), "seed 7");
    EXPECT_EQ(broadcast_text(world, "", root), "");
  }
}

TEST(Collectives, GatherTextsOfAnyLength) {
  const auto world = Communicator::world();
  const auto text_of = [](int rank) {
    return std::string(static_cast<std::size_t>(rank * 100'000), static_cast<char>('a' + rank));
  };
  for (int root = 0; root < world.size(); ++root) {
    const auto texts = gather_text(world, text_of(world.rank()), root);
    ASSERT_EQ(texts.size(), world.rank() == root ? static_cast<std::size_t>(world.size()) : 0U);
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      EXPECT_EQ(texts[rank], text_of(static_cast<int>(rank)));
    }
  }
  const auto all = all_gather_text(world, text_of(world.rank()));
  ASSERT_EQ(all.size(), static_cast<std::size_t>(world.size()));
  EXPECT_EQ(all.back(), text_of(world.size() - 1));
}

TEST(ProcessGrid, MatchesItsLayout) {
  const auto world = Communicator::world();
  for (int size = 1; size <= world.size(); ++size) {
    if (world.size() % size != 0) {
      EXPECT_THROW(ProcessGrid(world, size), Error);
      continue;
    }
    const ProcessGrid grid(world, size);
    EXPECT_EQ(all_gather(grid.expert_parallel(), world.rank()),
              grid.layout().expert_parallel_ranks(world.rank()));
    EXPECT_EQ(all_gather(grid.expert_data_parallel(), world.rank()),
              grid.layout().expert_data_parallel_ranks(world.rank()));
    EXPECT_EQ(grid.expert_parallel().rank(), grid.layout().expert_parallel_rank(world.rank()));
    EXPECT_EQ(grid.size(), world.size());
  }
}

TEST(ProcessGrid, KnowsNodes) {
  const auto world = Communicator::world();
  const ProcessGrid grid(world, 1);
  // The tests run on one machine, which is one node.
  EXPECT_EQ(grid.nodes(), 1);
  EXPECT_EQ(grid.node(), 0);
  EXPECT_EQ(grid.local_rank(), world.rank());
  EXPECT_EQ(grid.local_size(), world.size());
  EXPECT_TRUE(grid.inside_one_node(grid.layout().world_ranks()));
}

TEST(Clock, IsOneAndTheSameOnAMachine) {
  const auto world = Communicator::world();
  EXPECT_EQ(estimate_clock_offset(world), 0);
}

}  // namespace
}  // namespace expedite::comm
