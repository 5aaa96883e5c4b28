#include "expedite/kernels/router.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <functional>
#include <limits>
#include <string>

#include "tests/kernels/router_problem.h"
#include "tests/kernels/targets.h"

namespace expedite::kernels::router_test {
namespace {

const Case kCases[] = {{0, 4, 2, 0},   {1, 1, 1, 0},     {3, 5, 5, 2},     {17, 8, 2, 0},  {90, 16, 4, 1},
                       {40, 33, 6, 3}, {150, 128, 8, 0}, {20, 512, 16, 0}, {9, 300, 16, 1}};

void check_route(Scoring scoring, bool renormalize, bool biased) {
  std::mt19937 generator(1);
  for (const Case& shape : kCases) {
    Problem problem(shape, generator);
    problem.options.scoring = scoring;
    problem.options.renormalize = renormalize;
    problem.options.scaling_factor = 2.5F;
    Matrix<float> bias = Matrix<float>::random(1, shape.experts, generator, 0.3);
    const auto bias_span = biased ? bias.vector().span<float>() : std::span<float>();
    problem.run(bias_span);
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      const auto scores = reference_scores(row_of(problem.logits, t), scoring);
      for (std::int64_t e = 0; e < shape.experts; ++e) {
        expect_close(problem.scores.at(t, e), scores[static_cast<std::size_t>(e)], 2e-6, 0.0, "scores", t, e);
      }
      expect_choice(problem, bias_span, t);
      const auto weights = reference_weights(scores, experts_of(problem.experts, t), problem.options);
      for (std::int64_t j = 0; j < shape.k; ++j) {
        expect_close(problem.weights.at(t, j), weights[static_cast<std::size_t>(j)], 4e-6, 0.0, "weights", t,
                     j);
      }
    }
    EXPECT_TRUE(problem.scores.gaps_untouched());
    EXPECT_TRUE(problem.experts.gaps_untouched());
    EXPECT_TRUE(problem.weights.gaps_untouched());
  }
}

TEST(Router, ScoresChoosesAndWeighs) {
  for (const Scoring scoring : {Scoring::softmax, Scoring::sigmoid}) {
    for (const bool renormalize : {true, false}) {
      for (const bool biased : {true, false}) {
        for_each_target([&] { check_route(scoring, renormalize, biased); });
      }
    }
  }
}

void check_ties() {
  std::mt19937 generator(2);
  Problem problem({64, 40, 16, 0}, generator);
  for (std::int64_t t = 0; t < 64; ++t) {
    for (std::int64_t e = 0; e < 40; ++e) {
      problem.logits(t, e) = t == 0 ? 0.0F : static_cast<float>(generator() % 3);
    }
  }
  problem.run();
  for (std::int64_t t = 0; t < 64; ++t) {
    expect_choice(problem, {}, t);
  }
}

TEST(Router, TheLowerOfEqualExpertsWins) {
  for_each_target(check_ties);
}

// Logits so far apart that most scores vanish: choices stay different and weights finite.
void check_extremes(Scoring scoring) {
  std::mt19937 generator(3);
  Problem problem({2, 20, 5, 0}, generator);
  problem.options.scoring = scoring;
  for (std::int64_t e = 0; e < 20; ++e) {
    problem.logits(0, e) = e == 7 ? 3e38F : -3e38F;
    problem.logits(1, e) = -3e38F;
  }
  problem.run();
  EXPECT_EQ(experts_of(problem.experts, 0), (std::vector<std::int64_t>{7, 0, 1, 2, 3}));
  EXPECT_EQ(experts_of(problem.experts, 1), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(problem.weights.at(0, 0), 1.0);
  for (std::int64_t j = 0; j < 5; ++j) {
    EXPECT_TRUE(std::isfinite(problem.weights.at(1, j)));
  }
}

TEST(Router, ExtremeLogitsStayFinite) {
  for_each_target([] { check_extremes(Scoring::softmax); });
  for_each_target([] { check_extremes(Scoring::sigmoid); });
}

void check_not_finite() {
  std::mt19937 generator(4);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const std::int64_t expert : {0, 15, 16, 36}) {
      Problem problem({300, 37, 2, 1}, generator);
      problem.logits(290, 3) = bad;
      problem.logits(131, expert) = bad;
      const auto untouched = problem.experts;
      const std::string message = message_of([&] { problem.run(); });
      EXPECT_EQ(message.find(fmt::format("router logit [131, {}] is ", expert)), 0U) << message;
      EXPECT_TRUE(problem.experts.same_bits(untouched));
    }
  }
}

TEST(RouterErrors, NameTheFirstRowThatIsNotFinite) {
  for_each_target(check_not_finite);
}

TEST(RouterErrors, NameWrongOptions) {
  std::mt19937 generator(5);
  Problem problem({3, 4, 2, 0}, generator);
  std::vector<float> bias = {0.0F, std::numeric_limits<float>::quiet_NaN(), 0.0F, 0.0F};
  EXPECT_EQ(message_of([&] { problem.run(bias); }), "the selection bias of expert 1 is nan");
  bias.resize(3);
  EXPECT_EQ(message_of([&] { problem.run(bias); }), "the selection bias has 3 entries for 4 experts");
  problem.options.top_k = 5;
  EXPECT_EQ(message_of([&] { problem.run(); }), "a token cannot choose 5 of 4 experts");
  problem.options.top_k = 2;
  problem.run();
  problem.experts(1, 1) = 4;
  std::vector<std::int64_t> counts(4);
  EXPECT_EQ(message_of([&] { count_experts(problem.experts.view(), std::span<std::int64_t>(counts)); }),
            "token 1 chose expert 4 of 4");
}

// d loss / d logit for a loss that `loss` computes in double from a row of logits.
double difference(std::vector<double> logits, std::size_t e,
                  const std::function<double(const std::vector<double>&)>& loss) {
  constexpr double kStep = 1e-5;
  const double kept = logits[e];
  logits[e] = kept + kStep;
  const double above = loss(logits);
  logits[e] = kept - kStep;
  return (above - loss(logits)) / (2 * kStep);
}

void check_route_backward(Scoring scoring, bool renormalize) {
  std::mt19937 generator(6);
  for (const Case& shape : {Case{0, 4, 2, 0}, Case{1, 1, 1, 0}, Case{5, 7, 3, 2}, Case{3, 40, 8, 0}}) {
    Problem problem(shape, generator);
    problem.options.scoring = scoring;
    problem.options.renormalize = renormalize;
    problem.options.scaling_factor = 1.75F;
    problem.run();
    auto dweights = Matrix<float>::random(shape.tokens, shape.k, generator, 1.0, shape.gap);
    Matrix<float> dlogits(shape.tokens, shape.experts, shape.gap);
    route_backward(dweights.view(), problem.scores.view(), problem.experts.view(), problem.options,
                   dlogits.view());
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      const auto chosen = experts_of(problem.experts, t);  // the choice has no gradient: it stays
      const auto loss = [&](const std::vector<double>& logits) {
        const auto weights = reference_weights(reference_scores(logits, scoring), chosen, problem.options);
        double sum = 0.0;
        for (std::int64_t j = 0; j < shape.k; ++j) {
          sum += weights[static_cast<std::size_t>(j)] * dweights.at(t, j);
        }
        return sum;
      };
      for (std::int64_t e = 0; e < shape.experts; ++e) {
        const double expected = difference(row_of(problem.logits, t), static_cast<std::size_t>(e), loss);
        EXPECT_NEAR(dlogits.at(t, e), expected, 3e-6) << t << ", " << e;
      }
    }
    EXPECT_TRUE(dlogits.gaps_untouched());
  }
}

TEST(RouterGradient, OfWeightsAgreesWithFiniteDifferences) {
  for (const Scoring scoring : {Scoring::softmax, Scoring::sigmoid}) {
    for (const bool renormalize : {true, false}) {
      for_each_target([&] { check_route_backward(scoring, renormalize); });
    }
  }
}

void check_load_balance(Scoring scoring) {
  std::mt19937 generator(7);
  for (const Case& shape : {Case{4, 1, 1, 0}, Case{6, 21, 2, 3}}) {
    Problem problem(shape, generator);
    problem.options.scoring = scoring;
    problem.run();
    Matrix<float> gradient = Matrix<float>::random(1, shape.experts, generator);
    auto dlogits = Matrix<float>::random(shape.tokens, shape.experts, generator, 1.0, shape.gap);
    const auto before = dlogits;
    load_balance_backward(problem.scores.view(), gradient.vector().span<float>(), scoring, dlogits.view());
    const auto loss = [&](const std::vector<double>& logits) {
      const auto scores = reference_scores(logits, scoring);
      double sum = 0.0;
      for (std::size_t e = 0; e < scores.size(); ++e) {
        sum += scores[e] * gradient.at(0, static_cast<std::int64_t>(e));
      }
      return sum;
    };
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      for (std::int64_t e = 0; e < shape.experts; ++e) {
        const double expected = difference(row_of(problem.logits, t), static_cast<std::size_t>(e), loss);
        EXPECT_NEAR(dlogits.at(t, e) - before.at(t, e), expected, 2e-6) << t << ", " << e;
      }
    }
    EXPECT_TRUE(dlogits.gaps_untouched());
  }
}

TEST(RouterGradient, OfLoadBalanceAgreesWithFiniteDifferences) {
  for_each_target([] { check_load_balance(Scoring::softmax); });
  for_each_target([] { check_load_balance(Scoring::sigmoid); });
}

double squared_log_sum(const std::vector<double>& logits) {
  double sum = 0.0;
  for (const double logit : logits) {
    sum += std::exp(logit);
  }
  return std::log(sum) * std::log(sum);
}

void check_z_loss() {
  std::mt19937 generator(8);
  for (const Case& shape : {Case{0, 3, 1, 0}, Case{5, 1, 1, 0}, Case{130, 19, 2, 3}}) {
    auto logits = Matrix<float>::random(shape.tokens, shape.experts, generator, 2.0, shape.gap);
    auto dlogits = Matrix<float>::random(shape.tokens, shape.experts, generator, 1.0, shape.gap);
    const auto before = dlogits;
    double expected = 0.0;
    const double alone = z_loss(logits.view(), 0.25F, TensorView());
    EXPECT_EQ(alone, z_loss(logits.view(), 0.25F, dlogits.view()));
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      const auto row = row_of(logits, t);
      expected += squared_log_sum(row);
      for (std::int64_t e = 0; e < shape.experts; ++e) {
        EXPECT_NEAR(dlogits.at(t, e) - before.at(t, e),
                    0.25 * difference(row, static_cast<std::size_t>(e), squared_log_sum), 3e-6);
      }
    }
    EXPECT_NEAR(alone, expected, 2e-6 * expected);
    EXPECT_TRUE(dlogits.gaps_untouched());
  }
}

TEST(RouterGradient, OfZLossAgreesWithFiniteDifferences) {
  for_each_target(check_z_loss);
}

TEST(Router, CountsExpertsAndSumsScores) {
  std::mt19937 generator(9);
  Problem problem({700, 12, 3, 2}, generator);
  problem.run();
  std::vector<std::int64_t> counts(12, 5);
  std::vector<double> sums(12, 0.5);
  count_experts(problem.experts.view(), std::span<std::int64_t>(counts));
  sum_scores(problem.scores.view(), sums);
  for (std::int64_t e = 0; e < 12; ++e) {
    std::int64_t count = 5;
    double sum = 0.5;
    for (std::int64_t t = 0; t < 700; ++t) {
      sum += problem.scores.at(t, e);
      for (const std::int64_t chosen : experts_of(problem.experts, t)) {
        count += chosen == e ? 1 : 0;
      }
    }
    EXPECT_EQ(counts[static_cast<std::size_t>(e)], count);
    EXPECT_NEAR(sums[static_cast<std::size_t>(e)], sum, 1e-10);
  }
}

TEST(Router, ThreadsDoNotChangeBits) {
  std::mt19937 generator(10);
  const int threads = omp_get_max_threads();
  Problem one({1000, 24, 4, 0}, generator);
  Problem three = one;
  std::vector<double> sums[2] = {std::vector<double>(24), std::vector<double>(24)};
  omp_set_num_threads(1);
  one.run();
  sum_scores(one.scores.view(), sums[0]);
  const double loss_one = z_loss(one.logits.view(), 1.0F, TensorView());
  omp_set_num_threads(3);
  three.run();
  sum_scores(three.scores.view(), sums[1]);
  const double loss_three = z_loss(three.logits.view(), 1.0F, TensorView());
  omp_set_num_threads(threads);
  EXPECT_TRUE(one.scores.same_bits(three.scores));
  EXPECT_TRUE(one.experts.same_bits(three.experts));
  EXPECT_TRUE(one.weights.same_bits(three.weights));
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(loss_one, loss_three);
}

}  // namespace
}  // namespace expedite::kernels::router_test
