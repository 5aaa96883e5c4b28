#include "expedite/kernels/cross_entropy.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/kernels/matrix.h"
#include "tests/kernels/targets.h"

namespace expedite::kernels {
namespace {

struct Case {
  std::int64_t tokens;
  std::int64_t hidden;
  std::int64_t vocabulary;
};

std::vector<std::int32_t> random_targets(const Case& size, std::mt19937& generator) {
  std::uniform_int_distribution<std::int32_t> target(0, static_cast<std::int32_t>(size.vocabulary) - 1);
  std::vector<std::int32_t> targets(static_cast<std::size_t>(size.tokens));
  for (std::size_t t = 0; t < targets.size(); ++t) {
    targets[t] = t % 5 == 3 ? kIgnoredTarget : target(generator);
  }
  return targets;
}

struct Reference {
  double loss = 0;
  std::vector<double> dhidden;
  std::vector<double> dweight;
};

/// Everything in double, token by token.
template <typename T>
Reference reference(const Matrix<T>& hidden, const Matrix<T>& weight,
                    const std::vector<std::int32_t>& targets, double scale) {
  const std::int64_t width = hidden.columns();
  Reference result;
  result.dhidden.assign(static_cast<std::size_t>(hidden.rows() * width), 0.0);
  result.dweight.assign(static_cast<std::size_t>(weight.rows() * width), 0.0);
  for (std::int64_t t = 0; t < hidden.rows(); ++t) {
    if (targets[t] == kIgnoredTarget) {
      continue;
    }
    std::vector<double> logits(static_cast<std::size_t>(weight.rows()));
    double sum = 0;
    for (std::int64_t v = 0; v < weight.rows(); ++v) {
      for (std::int64_t h = 0; h < width; ++h) {
        logits[v] += hidden.at(t, h) * weight.at(v, h);
      }
      sum += std::exp(logits[v]);
    }
    result.loss += std::log(sum) - logits[targets[t]];
    for (std::int64_t v = 0; v < weight.rows(); ++v) {
      const double dlogit = scale * (std::exp(logits[v]) / sum - (v == targets[t] ? 1.0 : 0.0));
      for (std::int64_t h = 0; h < width; ++h) {
        result.dhidden[t * width + h] += dlogit * weight.at(v, h);
        result.dweight[v * width + h] += dlogit * hidden.at(t, h);
      }
    }
  }
  return result;
}

template <typename T>
void check(const Case& size, double relative) {
  SCOPED_TRACE(fmt::format("T {}, H {}, V {}", size.tokens, size.hidden, size.vocabulary));
  std::mt19937 generator(31);
  auto hidden = Matrix<T>::random(size.tokens, size.hidden, generator, 1.0, 3);
  auto weight = Matrix<T>::random(size.vocabulary, size.hidden, generator, 0.3);
  const auto targets = random_targets(size, generator);
  Matrix<T> dhidden(size.tokens, size.hidden, 2);
  auto dweight = Matrix<float>::random(size.vocabulary, size.hidden, generator);
  auto before = dweight;
  const float scale = 0.25F;
  const CrossEntropyGradients gradients{scale, dhidden.view(), dweight.view()};
  MemoryPool pool;
  const double loss = linear_cross_entropy(hidden.view(), weight.view(), targets, &gradients, pool);
  EXPECT_EQ(loss, linear_cross_entropy(hidden.view(), weight.view(), targets, nullptr, pool));
  EXPECT_EQ(pool.current_bytes(), 0);
  const Reference expected = reference(hidden, weight, targets, scale);
  EXPECT_NEAR(loss, expected.loss, 1e-6 * (expected.loss + static_cast<double>(size.tokens)));
  for (std::int64_t t = 0; t < size.tokens; ++t) {
    for (std::int64_t h = 0; h < size.hidden; ++h) {
      expect_close(dhidden.at(t, h), expected.dhidden[t * size.hidden + h], relative, 0.25, "dhidden", t, h);
    }
  }
  for (std::int64_t v = 0; v < size.vocabulary; ++v) {
    for (std::int64_t h = 0; h < size.hidden; ++h) {
      expect_close(dweight.at(v, h), before.at(v, h) + expected.dweight[v * size.hidden + h], relative, 1.0,
                   "dweight", v, h);
    }
  }
  EXPECT_TRUE(dhidden.gaps_untouched());
}

const Case kCases[] = {{0, 8, 5},     {1, 1, 1},    {1, 16, 40}, {7, 33, 100},
                       {40, 24, 257}, {33, 64, 16}, {4, 3, 1000}};

TEST(CrossEntropy, AgreesWithDoubleInF32) {
  for_each_target([] {
    for (const Case& size : kCases) {
      check<float>(size, 4e-6);
    }
  });
}

TEST(CrossEntropy, AgreesWithDoubleInBf16) {
  for_each_target([] {
    for (const Case& size : kCases) {
      check<bf16>(size, 3 * rounding<bf16>());  // a logit's gradient is rounded before it is multiplied
    }
  });
}

TEST(CrossEntropy, BlocksOfRowsAddUp) {
  check<float>({1100, 4, 9}, 2e-5);  // more rows than one block
}

TEST(CrossEntropy, HoldsABlockOfLogitsOnly) {
  constexpr std::int64_t kTokens = 2000;
  constexpr std::int64_t kVocabulary = 50000;
  std::mt19937 generator(2);
  auto hidden = Matrix<bf16>::random(kTokens, 8, generator);
  auto weight = Matrix<bf16>::random(kVocabulary, 8, generator);
  const std::vector<std::int32_t> targets(kTokens, 1);
  MemoryPool pool;
  (void)linear_cross_entropy(hidden.view(), weight.view(), targets, nullptr, pool);
  EXPECT_LE(pool.peak_bytes(MemoryCategory::workspace), std::int64_t{128} << 20);
  EXPECT_GT(pool.peak_bytes(MemoryCategory::workspace), 0);
}

TEST(CrossEntropy, GradientsMatchFiniteDifferences) {
  const Case size{6, 10, 17};
  std::mt19937 generator(32);
  auto hidden = Matrix<float>::random(size.tokens, size.hidden, generator);
  auto weight = Matrix<float>::random(size.vocabulary, size.hidden, generator, 0.3);
  const auto targets = random_targets(size, generator);
  Matrix<float> dhidden(size.tokens, size.hidden);
  Matrix<float> dweight(size.vocabulary, size.hidden);
  dweight.set_all(0.0F);
  const CrossEntropyGradients gradients{1.0F, dhidden.view(), dweight.view()};
  MemoryPool pool;
  (void)linear_cross_entropy(hidden.view(), weight.view(), targets, &gradients, pool);
  const auto slope = [&](float& value) {
    constexpr float kStep = 1.0F / 128;
    const float kept = value;
    value = kept + kStep;
    const double above = linear_cross_entropy(hidden.view(), weight.view(), targets, nullptr, pool);
    value = kept - kStep;
    const double below = linear_cross_entropy(hidden.view(), weight.view(), targets, nullptr, pool);
    value = kept;
    return (above - below) / (2.0 * kStep);
  };
  for (std::int64_t h = 0; h < size.hidden; ++h) {
    for (std::int64_t t = 0; t < size.tokens; ++t) {
      EXPECT_NEAR(dhidden.at(t, h), slope(hidden(t, h)), 5e-4) << t << ", " << h;
    }
    for (std::int64_t v = 0; v < size.vocabulary; ++v) {
      EXPECT_NEAR(dweight.at(v, h), slope(weight(v, h)), 5e-4) << v << ", " << h;
    }
  }
}

TEST(CrossEntropy, LargeLogitsStayFinite) {
  Matrix<float> hidden(2, 1);
  Matrix<float> weight(3, 1);
  hidden(0, 0) = 1.0F;
  hidden(1, 0) = -1.0F;
  weight(0, 0) = 1e5F;
  weight(1, 0) = 0.0F;
  weight(2, 0) = -1e5F;
  MemoryPool pool;
  const std::vector<std::int32_t> targets = {0, 0};
  EXPECT_EQ(linear_cross_entropy(hidden.view(), weight.view(), targets, nullptr, pool), 2e5);
}

TEST(CrossEntropy, NanReachesTheLossUnlessItsTokenIsIgnored) {
  std::mt19937 generator(33);
  for (const float poison :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const std::int64_t place : {0, 5, 20}) {
      auto hidden = Matrix<float>::random(3, 1, generator);
      auto weight = Matrix<float>::random(21, 1, generator);
      weight(place, 0) = poison;
      hidden(1, 0) = 1.0F;
      MemoryPool pool;
      std::vector<std::int32_t> targets = {kIgnoredTarget, 3, kIgnoredTarget};
      EXPECT_TRUE(std::isnan(linear_cross_entropy(hidden.view(), weight.view(), targets, nullptr, pool)));
      targets[1] = kIgnoredTarget;
      Matrix<float> dhidden(3, 1);
      Matrix<float> dweight(21, 1);
      const CrossEntropyGradients gradients{1.0F, dhidden.view(), dweight.view()};
      EXPECT_EQ(linear_cross_entropy(hidden.view(), weight.view(), targets, &gradients, pool), 0.0);
    }
  }
}

TEST(CrossEntropy, ThreadsDoNotChangeBits) {
  const Case size{300, 40, 1200};
  std::mt19937 generator(34);
  auto hidden = Matrix<bf16>::random(size.tokens, size.hidden, generator);
  auto weight = Matrix<bf16>::random(size.vocabulary, size.hidden, generator);
  const auto targets = random_targets(size, generator);
  const int before = omp_get_max_threads();
  std::vector<double> losses;
  std::vector<Matrix<bf16>> dhidden;
  std::vector<Matrix<float>> dweight;
  MemoryPool pool;
  for (const int threads : {1, 2, 4}) {
    omp_set_num_threads(threads);
    dhidden.emplace_back(size.tokens, size.hidden);
    dweight.emplace_back(size.vocabulary, size.hidden).set_all(0.0F);
    const CrossEntropyGradients gradients{0.01F, dhidden.back().view(), dweight.back().view()};
    losses.push_back(linear_cross_entropy(hidden.view(), weight.view(), targets, &gradients, pool));
  }
  omp_set_num_threads(before);
  for (std::size_t i = 1; i < losses.size(); ++i) {
    EXPECT_EQ(losses[i], losses[0]);
    EXPECT_TRUE(dhidden[i].same_bits(dhidden[0]));
    EXPECT_TRUE(dweight[i].same_bits(dweight[0]));
  }
}

TEST(CrossEntropy, NamesATargetOutsideTheVocabulary) {
  Matrix<float> hidden(3, 4);
  Matrix<float> weight(5, 4);
  hidden.set_all(1.0F);
  weight.set_all(1.0F);
  MemoryPool pool;
  for (const std::int32_t wrong : {5, -2}) {
    const std::vector<std::int32_t> targets = {0, wrong, 1};
    try {
      (void)linear_cross_entropy(hidden.view(), weight.view(), targets, nullptr, pool);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(fmt::format("target {} of token 1", wrong)),
                std::string::npos);
    }
  }
  const std::vector<std::int32_t> few = {0};
  EXPECT_THROW((void)linear_cross_entropy(hidden.view(), weight.view(), few, nullptr, pool), Error);
}

}  // namespace
}  // namespace expedite::kernels
