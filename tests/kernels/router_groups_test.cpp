// Routers that choose from the best groups of experts only.
#include <gtest/gtest.h>

#include "tests/kernels/router_problem.h"
#include "tests/kernels/targets.h"

namespace expedite::kernels::router_test {
namespace {

struct GroupCase {
  Case shape;
  std::int64_t groups;
  std::int64_t top_groups;
};

// Few different logits and biases, so that groups and experts tie. A shift below -1 makes every biased score
// negative: then experts of the other groups, which count as 0, are chosen first.
void check_groups(Scoring scoring, GroupScore group_score, float bias_shift) {
  std::mt19937 generator(11);
  for (const GroupCase& limit :
       {GroupCase{{30, 4, 2, 0}, 2, 1}, GroupCase{{50, 32, 6, 1}, 8, 3}, GroupCase{{20, 256, 8, 0}, 8, 4},
        GroupCase{{9, 12, 12, 0}, 4, 4}, GroupCase{{0, 8, 1, 0}, 4, 2}, GroupCase{{40, 21, 9, 2}, 3, 2},
        GroupCase{{33, 160, 6, 0}, 8, 3}, GroupCase{{12, 6, 2, 0}, 6, 3}, GroupCase{{3, 2, 1, 0}, 2, 1}}) {
    if (group_score == GroupScore::best_two && limit.shape.experts == limit.groups) {
      continue;  // groups of one
    }
    Problem problem(limit.shape, generator);
    problem.options.scoring = scoring;
    problem.options.groups = limit.groups;
    problem.options.top_groups = limit.top_groups;
    problem.options.group_score = group_score;
    std::vector<float> bias;
    for (std::int64_t e = 0; e < limit.shape.experts; ++e) {
      bias.push_back(bias_shift + 0.25F * static_cast<float>(generator() % 4));
    }
    for (std::int64_t t = 0; t < limit.shape.tokens / 2; ++t) {
      for (std::int64_t e = 0; e < limit.shape.experts; ++e) {
        problem.logits(t, e) = static_cast<float>(generator() % 3);
      }
    }
    for (const bool biased : {true, false}) {
      const std::span<const float> given = biased ? std::span<const float>(bias) : std::span<const float>();
      problem.run(given);
      for (std::int64_t t = 0; t < limit.shape.tokens; ++t) {
        expect_choice(problem, given, t);
        const auto scores = reference_scores(row_of(problem.logits, t), scoring);
        const auto weights = reference_weights(scores, experts_of(problem.experts, t), problem.options);
        for (std::int64_t j = 0; j < limit.shape.k; ++j) {
          expect_close(problem.weights.at(t, j), weights[static_cast<std::size_t>(j)], 4e-6, 0.0, "weights",
                       t, j);
        }
      }
    }
  }
}

TEST(Router, ChoosesFromTheBestGroups) {
  for (const Scoring scoring : {Scoring::softmax, Scoring::sigmoid}) {
    for (const float shift : {0.0F, -0.6F, -3.0F}) {
      for_each_target([&] {
        check_groups(scoring, GroupScore::best_two, shift);
        check_groups(scoring, GroupScore::best, shift);
      });
    }
  }
}

void check_groups_by_hand() {
  std::mt19937 generator(12);
  Problem problem({2, 6, 2, 0}, generator);
  problem.options.scoring = Scoring::sigmoid;
  problem.options.renormalize = false;
  problem.options.groups = 3;
  for (std::int64_t e = 0; e < 6; ++e) {
    problem.logits(0, e) = 0.0F;
    problem.logits(1, e) = 0.0F;
  }
  problem.logits(0, 1) = 5.0F;  // the best expert, but not the best pair
  std::vector<float> bias = {-0.5F, 0.0F, 0.25F, 0.5F, 0.25F, 0.5F};
  problem.run(bias);
  EXPECT_EQ(experts_of(problem.experts, 0), (std::vector<std::int64_t>{3, 2}));
  EXPECT_EQ(problem.weights.at(0, 0), 0.5);
  // The middle group is the best, but no expert of it is above the 0 of those that are masked.
  bias = {-2.0F, -2.0F, -1.0F, -1.0F, -2.0F, -2.0F};
  problem.run(bias);
  EXPECT_EQ(experts_of(problem.experts, 1), (std::vector<std::int64_t>{0, 1}));
  // Sums beyond the range of float.
  bias.assign(6, -3.4e38F);
  problem.options.top_groups = 2;
  problem.options.top_k = 2;
  problem.run(bias);
  EXPECT_EQ(experts_of(problem.experts, 1), (std::vector<std::int64_t>{4, 5}));
}

TEST(Router, JudgesAGroupByItsBestTwoExperts) {
  for_each_target(check_groups_by_hand);
}

// DeepSeek-V2: softmax scores times a factor, from the groups that hold the best experts.
void check_best_by_hand() {
  std::mt19937 generator(13);
  Problem problem({2, 6, 2, 0}, generator);
  problem.options.renormalize = false;
  problem.options.scaling_factor = 16.0F;
  problem.options.groups = 3;
  problem.options.group_score = GroupScore::best;
  const double logits[] = {0.0, 5.0, 3.0, 3.0, 4.0, 4.5};
  for (std::int64_t e = 0; e < 6; ++e) {
    problem.logits(0, e) = static_cast<float>(logits[e]);
    problem.logits(1, e) = e == 4 ? 200.0F : (e == 0 ? 190.0F : 0.0F);
  }
  problem.run();
  EXPECT_EQ(experts_of(problem.experts, 0), (std::vector<std::int64_t>{1, 0}));
  double sum = 0.0;
  for (const double logit : logits) {
    sum += std::exp(logit);
  }
  EXPECT_NEAR(problem.weights.at(0, 0), 16.0 * std::exp(5.0) / sum, 1e-5);
  EXPECT_NEAR(problem.weights.at(0, 1), 16.0 / sum, 1e-5);
  // The other expert of the best group has a score of 0, and yet no other group's is chosen.
  EXPECT_EQ(experts_of(problem.experts, 1), (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(problem.weights.at(1, 1), 0.0);
  problem.options.top_groups = 2;
  problem.run();
  EXPECT_EQ(experts_of(problem.experts, 0), (std::vector<std::int64_t>{1, 5}));
}

TEST(Router, JudgesAGroupByItsBestExpert) {
  for_each_target(check_best_by_hand);
}

TEST(RouterErrors, NameGroupsThatDoNotFit) {
  std::mt19937 generator(5);
  Problem problem({3, 4, 2, 0}, generator);
  problem.options.groups = 2;
  problem.options.top_groups = 3;
  EXPECT_EQ(message_of([&] { problem.run(); }), "a token cannot choose 3 of 2 groups of experts");
  problem.options.groups = 4;
  EXPECT_EQ(message_of([&] { problem.run(); }), "4 experts do not make 4 equal groups of 2 or more");
  problem.options.groups = 3;
  EXPECT_EQ(message_of([&] { problem.run(); }), "4 experts do not make 3 equal groups of 2 or more");
  problem.options.groups = 2;
  problem.options.top_groups = 0;
  EXPECT_EQ(message_of([&] { problem.run(); }), "a token cannot choose 0 of 2 groups of experts");
  problem.options.group_score = GroupScore::best;
  problem.options.top_groups = 1;
  problem.options.groups = 3;
  EXPECT_EQ(message_of([&] { problem.run(); }), "4 experts do not make 3 equal groups of 1 or more");
  problem.options.groups = 4;
  problem.options.top_groups = 2;
  EXPECT_EQ(message_of([&] { problem.run(); }), "no error");
  problem.options.groups = 8;
  EXPECT_EQ(message_of([&] { problem.run(); }), "4 experts do not make 8 equal groups of 1 or more");
  Problem greedy({3, 4, 3, 0}, generator);
  greedy.options.groups = 2;
  EXPECT_EQ(message_of([&] { greedy.run(); }), "a token cannot choose 3 of the 2 experts in 1 groups");
}

}  // namespace
}  // namespace expedite::kernels::router_test
