#include "expedite/moe/dispatch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "expedite/base/error.h"
#include "expedite/kernels/grouped_matmul.h"

namespace expedite::moe {
namespace {

using kernels::RowRef;
using schedule::Dispatcher;

/// The plans of all ranks of a group, and rows moved by them as plain numbers.
class Group {
 public:
  Group(std::mt19937& random, Dispatcher dispatcher, const schedule::Chunking& chunking)
      : experts_(1 + static_cast<std::int64_t>(random() % 9)),
        top_k_(1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(experts_))) {
    const int ranks = 1 + static_cast<int>(random() % 6);
    for (int r = 0; r < ranks; ++r) {
      const int nodes = r == 0 ? 0 : *std::max_element(node_.begin(), node_.end()) + 1;
      node_.push_back(static_cast<int>(random() % static_cast<std::uint64_t>(std::min(nodes + 1, 3))));
      first_expert_.push_back(experts_ * r / ranks);
    }
    first_expert_.push_back(experts_);
    for (int r = 0; r < ranks; ++r) {
      layouts_.emplace_back(first_expert_, node_, r, dispatcher);
      choices_.push_back(
          draw_choices(random, static_cast<std::int64_t>(random() % 3 == 0 ? random() % 3 : random() % 40)));
    }
    std::vector<Choices> routing;
    for (int r = 0; r < ranks; ++r) {
      const auto& mine = choices_[static_cast<std::size_t>(r)];
      plans_.emplace_back(
          layouts_[static_cast<std::size_t>(r)],
          ConstTensorView(mine.data(), DType::i32, {static_cast<std::int64_t>(mine.size()) / top_k_, top_k_}),
          chunking);
      routing.push_back(plans_.back().choices());
    }
    for (DispatchPlan& plan : plans_) {
      plan.complete(routing);
    }
  }

  [[nodiscard]] int ranks() const { return static_cast<int>(plans_.size()); }
  [[nodiscard]] const DispatchPlan& plan(int rank) const { return plans_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const ExpertLayout& layout(int rank) const {
    return layouts_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::int64_t tokens(int rank) const {
    return static_cast<std::int64_t>(choices_[static_cast<std::size_t>(rank)].size()) / top_k_;
  }
  [[nodiscard]] std::int64_t top_k() const { return top_k_; }
  [[nodiscard]] int choice(int rank, std::int64_t token, std::int64_t j) const {
    return choices_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(token * top_k_ + j)];
  }
  [[nodiscard]] int node(int rank) const { return node_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int owner(int expert) const { return layouts_[0].owner(expert); }

 private:
  [[nodiscard]] std::vector<std::int32_t> draw_choices(std::mt19937& random, std::int64_t tokens) const {
    std::vector<std::int32_t> order(static_cast<std::size_t>(experts_));
    std::iota(order.begin(), order.end(), 0);
    std::vector<std::int32_t> choices;
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (random() % 3 != 0) {  // else the same experts again: skew
        std::shuffle(order.begin(), order.end(), random);
      }
      choices.insert(choices.end(), order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top_k_));
    }
    return choices;
  }

  std::int64_t experts_;
  std::int64_t top_k_;
  std::vector<int> node_;
  std::vector<std::int64_t> first_expert_;
  std::vector<ExpertLayout> layouts_;
  std::vector<std::vector<std::int32_t>> choices_;
  std::vector<DispatchPlan> plans_;
};

using Row = std::int64_t;  // in place of a row of numbers

Row token_row(int rank, std::int64_t token) {
  return (rank + 1) * std::int64_t{1000} + token;
}

/// What an expert makes of a row: no two sums of different terms are likely to agree.
Row expert_result(int expert, Row row) {
  return row * 7919 + static_cast<Row>(expert) * row * row + expert;
}

/// One chunk of all ranks, moved as the plans say.
class Movement {
 public:
  Movement(const Group& group, int chunk) : group_(group), chunk_(chunk) {
    const auto ranks = static_cast<std::size_t>(group.ranks());
    windows_.resize(ranks);
    outputs_.resize(ranks);
    shares_.resize(ranks);
    returned_.resize(ranks);
    for (int rank = 0; rank < group.ranks(); ++rank) {
      dispatch(rank);
    }
    for (int rank = 0; rank < group.ranks(); ++rank) {
      compute(rank);
    }
    for (int rank = 0; rank < group.ranks(); ++rank) {
      combine(rank);
    }
  }

  [[nodiscard]] Row result(int rank, std::int64_t token_of_chunk) const {
    const auto k = group_.top_k();
    const auto refs = std::span(plan(rank).token_sums)
                          .subspan(static_cast<std::size_t>(token_of_chunk * k), static_cast<std::size_t>(k));
    return sum(rank, refs, &returned_[static_cast<std::size_t>(rank)]);
  }

 private:
  [[nodiscard]] const ChunkPlan& plan(int rank) const { return group_.plan(rank).chunk(chunk_); }
  [[nodiscard]] int neighbour(int rank, std::int32_t n) const {
    return group_.layout(rank).neighbours()[static_cast<std::size_t>(n)];
  }

  void dispatch(int rank) {
    std::vector<Row>& window = windows_[static_cast<std::size_t>(rank)];
    for (int from = 0; from < group_.ranks(); ++from) {
      const ChunkPlan& sender = plan(from);
      EXPECT_EQ(sender.send_rows[static_cast<std::size_t>(rank)],
                plan(rank).recv_rows[static_cast<std::size_t>(from)]);
      const auto begin =
          std::reduce(sender.send_rows.begin(), sender.send_rows.begin() + rank, std::int64_t{0});
      for (std::int64_t i = 0; i < sender.send_rows[static_cast<std::size_t>(rank)]; ++i) {
        const RowRef ref = sender.send[static_cast<std::size_t>(begin + i)];
        EXPECT_EQ(ref.source, kTokens);
        window.push_back(token_row(from, ref.row));
      }
    }
    for (const RowRef& ref : plan(rank).share) {
      window.push_back(token_row(rank, ref.row));
    }
    EXPECT_EQ(static_cast<std::int64_t>(window.size()), plan(rank).outward_rows());
    const auto self = static_cast<std::size_t>(group_.layout(rank).local_index(rank));
    EXPECT_EQ(plan(rank).neighbour_rows[self], plan(rank).outward_rows());
  }

  void compute(int rank) {
    const ChunkPlan& mine = plan(rank);
    std::vector<Row>& output = outputs_[static_cast<std::size_t>(rank)];
    output.assign(static_cast<std::size_t>(mine.blocks.total), 0);
    for (std::size_t e = 0; e < mine.blocks.begin.size(); ++e) {
      EXPECT_EQ(mine.blocks.rows[e] % kernels::kRowAlignment, 0);
      const int expert = static_cast<int>(group_.layout(rank).first_local_expert()) + static_cast<int>(e);
      for (std::int64_t row = mine.blocks.begin[e]; row < mine.blocks.begin[e] + mine.blocks.rows[e]; ++row) {
        const RowRef ref = mine.expand[static_cast<std::size_t>(row)];
        if (ref.source >= 0) {
          const Row input =
              ref.source == kTokens
                  ? token_row(rank, ref.row)
                  : windows_[static_cast<std::size_t>(neighbour(rank, ref.source - kArrived))].at(
                        static_cast<std::size_t>(ref.row));
          output[static_cast<std::size_t>(row)] = expert_result(expert, input);
          const int source = static_cast<int>(input / 1000) - 1;
          EXPECT_EQ(group_.choice(source, input % 1000, mine.slot[static_cast<std::size_t>(row)]), expert);
        }
      }
    }
    shares_[static_cast<std::size_t>(rank)] = sums(rank, mine.shared_sums);
  }

  void combine(int relay) {  // returns what arrived at `relay` to where it came from, in rank order
    const std::vector<Row> sums_here = sums(relay, plan(relay).return_sums);
    std::size_t next = 0;
    for (int to = 0; to < group_.ranks(); ++to) {
      for (std::int64_t i = 0; i < plan(relay).recv_rows[static_cast<std::size_t>(to)]; ++i) {
        returned_[static_cast<std::size_t>(to)].push_back(sums_here.at(next++));
      }
    }
    EXPECT_EQ(next, sums_here.size());
  }

  [[nodiscard]] std::vector<Row> sums(int rank, const std::vector<RowRef>& refs) const {
    std::vector<Row> result;
    for (std::size_t i = 0; i < refs.size(); i += static_cast<std::size_t>(group_.top_k())) {
      result.push_back(
          sum(rank, std::span(refs).subspan(i, static_cast<std::size_t>(group_.top_k())), nullptr));
    }
    return result;
  }

  [[nodiscard]] Row sum(int rank, std::span<const RowRef> refs, const std::vector<Row>* returned) const {
    Row total = 0;
    for (const RowRef& ref : refs) {
      if (ref.source == kExperts) {
        total += outputs_[static_cast<std::size_t>(rank)].at(static_cast<std::size_t>(ref.row));
      } else if (ref.source == kReturned) {
        total += returned->at(static_cast<std::size_t>(ref.row));
      } else if (ref.source >= kShared) {
        total += shares_[static_cast<std::size_t>(neighbour(rank, ref.source - kShared))].at(
            static_cast<std::size_t>(ref.row));
      }
    }
    return total;
  }

  const Group& group_;
  int chunk_;
  std::vector<std::vector<Row>> windows_, outputs_, shares_, returned_;
};

std::int64_t sent_rows(const Group& group, int rank) {
  std::int64_t rows = 0;
  for (int c = 0; c < group.plan(rank).chunks(); ++c) {
    rows += group.plan(rank).chunk(c).sent_rows();
  }
  return rows;
}

TEST(DispatchPlan, BringsEveryTokenToItsExpertsAndTheirSumBack) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    for (const Dispatcher dispatcher : schedule::kDispatchers) {
      const schedule::Chunking chunking = {.chunks = 1 + static_cast<int>(random() % 5),
                                           .tapered = random() % 2 == 0};
      const Group group(random, dispatcher, chunking);
      std::int64_t covered = 0;
      for (int c = 0; c < chunking.chunks; ++c) {
        const Movement movement(group, c);
        for (int rank = 0; rank < group.ranks(); ++rank) {
          const ChunkPlan& chunk = group.plan(rank).chunk(c);
          covered += chunk.tokens;
          for (std::int64_t t = 0; t < chunk.tokens; ++t) {
            const std::int64_t token = chunk.first_token + t;
            Row expected = 0;
            for (std::int64_t j = 0; j < group.top_k(); ++j) {
              expected += expert_result(group.choice(rank, token, j), token_row(rank, token));
            }
            ASSERT_EQ(movement.result(rank, t), expected)
                << name_of(dispatcher) << " round " << round << " rank " << rank << " token " << token;
          }
        }
      }
      std::int64_t tokens = 0;
      for (int rank = 0; rank < group.ranks(); ++rank) {
        tokens += group.tokens(rank);
      }
      EXPECT_EQ(covered, tokens);
    }
  }
}

TEST(DispatchPlan, SendsAsManyRowsAsEachDispatcherSays) {
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    for (const Dispatcher dispatcher : schedule::kDispatchers) {
      const Group group(random, dispatcher, {.chunks = 3});
      for (int rank = 0; rank < group.ranks(); ++rank) {
        std::int64_t copies = 0;
        std::set<std::pair<std::int64_t, int>> token_ranks;
        std::set<std::pair<std::int64_t, int>> token_nodes;
        std::set<int> nodes;
        for (int other = 0; other < group.ranks(); ++other) {
          nodes.insert(group.node(other));
        }
        for (std::int64_t t = 0; t < group.tokens(rank); ++t) {
          for (std::int64_t j = 0; j < group.top_k(); ++j) {
            const int owner = group.owner(group.choice(rank, t, j));
            copies += owner != rank;
            if (owner != rank) {
              token_ranks.emplace(t, owner);
            }
            if (group.node(owner) != group.node(rank)) {
              token_nodes.emplace(t, group.node(owner));
            }
          }
        }
        const auto expected = dispatcher == Dispatcher::alltoall ? copies
                              : dispatcher == Dispatcher::zero_redundancy
                                  ? static_cast<std::int64_t>(token_ranks.size())
                              : dispatcher == Dispatcher::hierarchical
                                  ? group.tokens(rank) * (static_cast<std::int64_t>(nodes.size()) - 1)
                                  : static_cast<std::int64_t>(token_nodes.size());
        EXPECT_EQ(sent_rows(group, rank), expected) << name_of(dispatcher);
      }
    }
  }
}

TEST(DispatchPlan, LaysAnExpertsChunksBehindEachOther) {
  std::mt19937 random(3);
  const Group group(random, Dispatcher::alltoall, {.chunks = 4});
  for (int rank = 0; rank < group.ranks(); ++rank) {
    const DispatchPlan& plan = group.plan(rank);
    const kernels::RowBlocks all = plan.layer_blocks(0, 4);
    std::int64_t next = 0;
    for (std::size_t e = 0; e < all.begin.size(); ++e) {
      EXPECT_EQ(all.begin[e], next);
      for (int c = 0; c < 4; ++c) {
        const kernels::RowBlocks one = plan.layer_blocks(c, 1);
        EXPECT_EQ(one.begin[e], next);
        EXPECT_EQ(one.rows[e], plan.chunk(c).blocks.rows[e]);
        EXPECT_EQ(one.total, all.total);
        next += one.rows[e];
      }
      EXPECT_EQ(all.begin[e] + all.rows[e], next);
    }
    EXPECT_EQ(all.total, next);
  }
}

TEST(DispatchPlan, RefusesRoutingThatCannotBe) {
  const std::vector<std::int64_t> first = {0, 2, 4};
  const std::vector<int> node = {0, 1};
  const ExpertLayout layout(first, node, 0, Dispatcher::alltoall);
  const std::vector<std::int32_t> choices = {0, 3};
  DispatchPlan plan(layout, ConstTensorView(choices.data(), DType::i32, {1, 2}), {});
  const std::vector<Choices> one_rank = {{0, 3}};
  EXPECT_THROW(plan.complete(one_rank), Error);
  const std::vector<Choices> half_a_token = {{0, 3}, {1}};
  EXPECT_THROW(plan.complete(half_a_token), Error);
  const std::vector<Choices> no_such_expert = {{0, 3}, {1, 4}};
  EXPECT_THROW(plan.complete(no_such_expert), Error);
}

TEST(DispatchPlan, RefusesMoreRowsThanRowNumbersReach) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::vector<std::int64_t> first = {0, 4};
  const std::vector<int> node = {0};
  const ExpertLayout layout(first, node, 0, Dispatcher::alltoall);
  const std::int32_t unused = 0;
  EXPECT_THROW((void)DispatchPlan(layout, ConstTensorView(&unused, DType::i32, {kMost, 2}), {}), Error);
}

}  // namespace
}  // namespace expedite::moe
