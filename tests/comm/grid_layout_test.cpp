// Groups and expert shares, without MPI.
#include "expedite/comm/grid_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "expedite/base/error.h"

namespace expedite::comm {
namespace {

TEST(ExpertRange, CoversAllExpertsOnceInOrder) {
  for (std::int64_t experts = 0; experts <= 20; ++experts) {
    for (int ranks = 1; ranks <= 24; ++ranks) {
      std::int64_t next = 0;
      std::int64_t least = experts;
      std::int64_t most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const ExpertRange range = expert_range(experts, ranks, rank);
        EXPECT_EQ(range.begin, next);
        next = range.end();
        least = std::min(least, range.count);
        most = std::max(most, range.count);
        for (std::int64_t expert = 0; expert < experts; ++expert) {
          EXPECT_EQ(range.contains(expert), expert_owner(experts, ranks, expert) == rank);
        }
      }
      EXPECT_EQ(next, experts);
      EXPECT_LE(most - least, 1);
    }
  }
}

TEST(ExpertRange, GivesTheFirstRanksOneMore) {
  EXPECT_EQ(expert_range(10, 4, 0), (ExpertRange{0, 3}));
  EXPECT_EQ(expert_range(10, 4, 1), (ExpertRange{3, 3}));
  EXPECT_EQ(expert_range(10, 4, 2), (ExpertRange{6, 2}));
  EXPECT_EQ(expert_range(10, 4, 3), (ExpertRange{8, 2}));
  EXPECT_EQ(expert_range(2, 4, 3), (ExpertRange{2, 0}));
}

TEST(ExpertRange, RejectsWhatDoesNotExist) {
  EXPECT_THROW((void)expert_range(8, 0, 0), Error);
  EXPECT_THROW((void)expert_range(8, 4, 4), Error);
  EXPECT_THROW((void)expert_range(8, 4, -1), Error);
  EXPECT_THROW((void)expert_range(-1, 4, 0), Error);
  EXPECT_THROW((void)expert_owner(8, 4, 8), Error);
  EXPECT_THROW((void)expert_owner(8, 4, -1), Error);
}

TEST(GridLayout, CutsRanksIntoGroups) {
  const GridLayout layout(8, 4);
  EXPECT_EQ(layout.replicas(), 2);
  EXPECT_EQ(layout.expert_parallel_ranks(5), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(layout.expert_data_parallel_ranks(5), (std::vector<int>{1, 5}));
  EXPECT_EQ(layout.expert_parallel_rank(6), 2);
  EXPECT_EQ(layout.replica(6), 1);
  EXPECT_EQ(layout.world_ranks().size(), 8U);
}

TEST(GridLayout, PutsEveryRankIntoBothOfItsGroups) {
  for (int world = 1; world <= 12; ++world) {
    for (int size = 1; size <= world; ++size) {
      if (world % size != 0) {
        EXPECT_THROW(GridLayout(world, size), Error);
        continue;
      }
      const GridLayout layout(world, size);
      for (int rank = 0; rank < world; ++rank) {
        const auto ep = layout.expert_parallel_ranks(rank);
        const auto dp = layout.expert_data_parallel_ranks(rank);
        EXPECT_EQ(ep.at(static_cast<std::size_t>(layout.expert_parallel_rank(rank))), rank);
        EXPECT_EQ(dp.at(static_cast<std::size_t>(layout.replica(rank))), rank);
        EXPECT_EQ(static_cast<int>(ep.size()), size);
        EXPECT_EQ(static_cast<int>(dp.size()), layout.replicas());
        EXPECT_TRUE(std::is_sorted(dp.begin(), dp.end()));
      }
    }
  }
}

TEST(GridLayout, NamesTheLegalSizes) {
  try {
    GridLayout(12, 5);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("1, 2, 3, 4, 6, 12"), std::string::npos) << error.what();
  }
  EXPECT_THROW(GridLayout(4, 0), Error);
  EXPECT_THROW(GridLayout(0, 1), Error);
}

}  // namespace
}  // namespace expedite::comm
