#include "expedite/moe/dispatch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "expedite/base/error.h"

namespace expedite::moe {
namespace {

using Choices = std::vector<std::int32_t>;

struct Case {
  std::int64_t tokens;
  std::int64_t top_k;
  Choices choices;
  std::vector<std::int32_t> position;
  DispatchPlan plan;
};

// Skewed choices without repetition within a token; some experts may get nothing.
Case make_case(std::mt19937& random, std::int64_t tokens, std::int64_t top_k, std::int64_t experts,
               bool local) {
  Case result{.tokens = tokens, .top_k = top_k};
  std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::shuffle(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::max(top_k, experts / 2)),
                 random);
    result.choices.insert(result.choices.end(), order.begin(),
                          order.begin() + static_cast<std::ptrdiff_t>(top_k));
  }
  result.position.resize(result.choices.size());
  result.plan = plan_dispatch(ConstTensorView(result.choices.data(), DType::i32, {tokens, top_k}), experts,
                              local, TensorView(result.position.data(), DType::i32, {tokens, top_k}));
  return result;
}

TEST(DispatchPlan, EveryChoiceHasARowOfItsOwnInExpertOrder) {
  std::mt19937 random(1);
  for (const std::int64_t tokens : {0, 1, 5, 64}) {
    for (const bool local : {false, true}) {
      const Case c = make_case(random, tokens, 3, 7, local);
      std::vector<int> taken(static_cast<std::size_t>(c.plan.dispatched_rows()), 0);
      for (std::size_t i = 0; i < c.choices.size(); ++i) {
        const auto row = static_cast<std::size_t>(c.position[i]);
        ++taken[row];
        EXPECT_EQ(c.plan.source_tokens[row], static_cast<std::int32_t>(i / 3));
        if (local) {
          const auto e = static_cast<std::size_t>(c.choices[i]);
          EXPECT_GE(c.position[i], c.plan.groups.offsets[e]);
          EXPECT_LT(c.position[i], c.plan.groups.offsets[e] + c.plan.groups.counts[e]);
        }
      }
      for (std::size_t row = 0; row < taken.size(); ++row) {
        EXPECT_EQ(taken[row], c.plan.source_tokens[row] >= 0 ? 1 : 0);
      }
    }
  }
}

// Moves every row by the plans of all ranks and checks that each reaches its expert, and comes back.
TEST(DispatchPlan, RowsReachTheirExpertsOnAnyUnevenLayout) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 50; ++trial) {
    const int ranks = 1 + static_cast<int>(random() % 5);
    const std::int64_t experts = 1 + static_cast<std::int64_t>(random() % 9);
    const std::int64_t top_k =
        1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(std::min<std::int64_t>(experts, 3)));
    std::vector<std::int64_t> first(static_cast<std::size_t>(ranks) + 1,
                                    0);  // any cut, ranks without experts too
    for (int r = 1; r < ranks; ++r) {
      first[static_cast<std::size_t>(r)] =
          static_cast<std::int64_t>(random() % static_cast<unsigned>(experts + 1));
    }
    first.back() = experts;
    std::sort(first.begin(), first.end());

    std::vector<Case> cases;
    std::vector<std::int64_t> all_counts;
    for (int r = 0; r < ranks; ++r) {
      cases.push_back(make_case(random, static_cast<std::int64_t>(random() % 20), top_k, experts, false));
      all_counts.insert(all_counts.end(), cases.back().plan.counts.begin(), cases.back().plan.counts.end());
    }
    for (int r = 0; r < ranks; ++r) {
      complete_plan(cases[static_cast<std::size_t>(r)].plan, all_counts, first, r);
    }
    for (int to = 0; to < ranks; ++to) {
      const DispatchPlan& plan = cases[static_cast<std::size_t>(to)].plan;
      std::vector<int> expert_of_arrival;
      for (int from = 0; from < ranks; ++from) {
        const Case& sender = cases[static_cast<std::size_t>(from)];
        EXPECT_EQ(sender.plan.send_rows[static_cast<std::size_t>(to)],
                  plan.recv_rows[static_cast<std::size_t>(from)]);
        Choices sorted = sender.choices;
        std::sort(sorted.begin(), sorted.end());
        for (const std::int32_t e : sorted) {
          if (e >= first[static_cast<std::size_t>(to)] && e < first[static_cast<std::size_t>(to) + 1]) {
            expert_of_arrival.push_back(e);
          }
        }
      }
      ASSERT_EQ(static_cast<std::int64_t>(expert_of_arrival.size()), plan.arrived_rows());
      for (std::size_t i = 0; i < expert_of_arrival.size(); ++i) {
        const auto row = static_cast<std::size_t>(plan.row_of_arrival[i]);
        const auto local =
            static_cast<std::size_t>(expert_of_arrival[i] - first[static_cast<std::size_t>(to)]);
        EXPECT_GE(static_cast<std::int64_t>(row), plan.groups.offsets[local]);
        EXPECT_LT(static_cast<std::int64_t>(row), plan.groups.offsets[local] + plan.groups.counts[local]);
        EXPECT_EQ(plan.arrival_of_row[row], static_cast<std::int32_t>(i));
      }
    }
  }
}

// Counts alone, without rows: what a rank sends and receives may pass 2^31 in total, but not on one rank.
TEST(DispatchPlan, AddsCountsBeyondThirtyTwoBits) {
  constexpr std::int64_t kMany = 1'500'000'000;
  DispatchPlan plan;
  plan.counts = {kMany, kMany, 7, 0};
  const std::vector<std::int64_t> all_counts = {kMany, kMany, 7, 0, kMany, kMany, 0, 2};
  const std::vector<std::int64_t> first_expert = {0, 2, 4};
  complete_plan(plan, all_counts, first_expert, 1);
  EXPECT_EQ(plan.send_rows, (std::vector<std::int64_t>{2 * kMany, 7}));
  EXPECT_EQ(plan.recv_rows, (std::vector<std::int64_t>{7, 2}));
  EXPECT_EQ(plan.arrived_rows(), 9);
}

TEST(DispatchPlan, RefusesMoreRowsOnOneRankThanTheKernelsCanNumber) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::vector<std::int64_t> first_expert = {0, 2, 2};
  // The last: rows that fit until each expert's are padded.
  for (const auto& arrivals :
       {std::vector<std::int64_t>{kMost, 1}, {kMost - 20, 5}, {3 * kMost, 0}, {kMost, 0}}) {
    DispatchPlan plan;
    plan.counts = {0, 0};
    const std::vector<std::int64_t> all_counts = {0, arrivals[1], arrivals[0], 0};
    try {
      complete_plan(plan, all_counts, first_expert, 0);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("2^31 - 1"), std::string::npos) << error.what();
    }
  }
  std::int32_t unused = 0;
  const ConstTensorView choices(&unused, DType::i32, {kMost, 2});
  EXPECT_THROW((void)plan_dispatch(choices, 4, false, TensorView(&unused, DType::i32, {kMost, 2})), Error);
}

}  // namespace
}  // namespace expedite::moe
