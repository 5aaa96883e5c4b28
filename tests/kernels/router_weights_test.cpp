// Gate weights of particular models, and where scores vanish.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/kernels/router_problem.h"
#include "tests/kernels/targets.h"

namespace expedite::kernels::router_test {
namespace {

// gpt-oss and Mixtral: a softmax over the chosen logits alone, which the others have no gradient from.
void check_softmax_over_the_chosen(double deviation) {
  std::mt19937 generator(21);
  for (const Case& shape : {Case{0, 4, 2, 0}, Case{5, 1, 1, 0}, Case{40, 32, 4, 1}, Case{30, 128, 4, 0}}) {
    Problem problem(shape, generator);
    problem.logits = Matrix<float>::random(shape.tokens, shape.experts, generator, deviation, shape.gap);
    problem.run();
    auto dweights = Matrix<float>::random(shape.tokens, shape.k, generator);
    Matrix<float> dlogits(shape.tokens, shape.experts);
    route_backward(dweights.view(), problem.scores.view(), problem.experts.view(), problem.options,
                   dlogits.view());
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      std::vector<double> chosen;
      for (const std::int64_t e : experts_of(problem.experts, t)) {
        chosen.push_back(problem.logits.at(t, e));
      }
      const std::vector<double> weights = reference_scores(chosen, Scoring::softmax);
      double mean = 0.0;
      for (std::int64_t j = 0; j < shape.k; ++j) {
        const double weight = weights[static_cast<std::size_t>(j)];
        expect_close(problem.weights.at(t, j), weight, 4e-6, 1e-30, "weights", t, j);
        mean += weight * dweights.at(t, j);
      }
      std::vector<double> expected(static_cast<std::size_t>(shape.experts), 0.0);
      for (std::int64_t j = 0; j < shape.k; ++j) {
        expected[static_cast<std::size_t>(problem.experts.at(t, j))] =
            weights[static_cast<std::size_t>(j)] * (dweights.at(t, j) - mean);
      }
      for (std::int64_t e = 0; e < shape.experts; ++e) {
        EXPECT_NEAR(dlogits.at(t, e), expected[static_cast<std::size_t>(e)], 3e-6);
      }
    }
  }
}

TEST(Router, RenormalisedSoftmaxIsThatOfTheChosenLogits) {
  for (const double deviation : {0.5, 4.0, 60.0}) {
    for_each_target([&] { check_softmax_over_the_chosen(deviation); });
  }
}

// A bias chooses experts whose scores are 0 or next to it: their weights are 0, as with DeepSeek-V3's 1e-20
// in the denominator, and gradients are numbers.
void check_vanished_scores(Scoring scoring) {
  std::mt19937 generator(22);
  Problem problem({3, 20, 5, 0}, generator);
  problem.options.scoring = scoring;
  problem.options.scaling_factor = 2.5F;
  std::vector<float> bias(20, 0.0F);
  for (std::int64_t e = 0; e < 20; ++e) {
    for (std::int64_t t = 0; t < 3; ++t) {
      problem.logits(t, e) = e < 5 ? -1e4F : 1.0F;
    }
    bias[static_cast<std::size_t>(e)] = e < 5 ? 4.0F : 0.0F;
  }
  problem.run(bias);
  Matrix<float> dweights(3, 5);
  dweights.set_all(-2.0F);
  Matrix<float> dlogits(3, 20);
  route_backward(dweights.view(), problem.scores.view(), problem.experts.view(), problem.options,
                 dlogits.view());
  for (std::int64_t t = 0; t < 3; ++t) {
    EXPECT_EQ(experts_of(problem.experts, t), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
    for (std::int64_t j = 0; j < 5; ++j) {
      EXPECT_NEAR(problem.weights.at(t, j), 0.0, 1e-12);
    }
    for (std::int64_t e = 0; e < 20; ++e) {
      EXPECT_NEAR(dlogits.at(t, e), 0.0, 1e-12);
    }
  }
}

TEST(Router, VanishedScoresGiveWeightsOfZero) {
  for_each_target([] { check_vanished_scores(Scoring::softmax); });
  for_each_target([] { check_vanished_scores(Scoring::sigmoid); });
}

}  // namespace
}  // namespace expedite::kernels::router_test
