#include "expedite/kernels/swiglu.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <limits>

#include "tests/kernels/matrix.h"
#include "tests/kernels/targets.h"

namespace expedite::kernels {
namespace {

template <typename T>
class Swiglu : public testing::Test {};
using FloatTypes = testing::Types<float, bf16>;
TYPED_TEST_SUITE(Swiglu, FloatTypes);

struct Case {
  std::int64_t rows;
  std::int64_t width;
  std::int64_t gap;
};
const Case kCases[] = {{0, 16, 0}, {1, 1, 0}, {4, 0, 1}, {3, 5, 2}, {7, 16, 0}, {20, 33, 1}, {40, 176, 5}};

// Half a unit in the last place, and what the sigmoid adds: 14 good bits for a bf16.
template <typename T>
constexpr double tolerance() {
  return rounding<T>() + (sizeof(T) == sizeof(bf16) ? 1e-4 : 5e-7);
}

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

enum class Weights { none, given };

// Some of them zero.
Matrix<float> random_weights(std::int64_t rows, Weights kind, std::mt19937& generator) {
  auto weights = Matrix<float>::random(1, rows, generator);
  for (std::int64_t r = 0; r < rows; ++r) {
    if (kind == Weights::none) {
      weights(0, r) = 1.0F;
    } else if (r % 3 == 2) {
      weights(0, r) = 0.0F;
    }
  }
  return weights;
}

template <typename T>
void check_forward(Weights kind) {
  std::mt19937 generator(1);
  for (const Case& shape : kCases) {
    auto gate_up = Matrix<T>::random(shape.rows, 2 * shape.width, generator, 4.0, shape.gap);
    auto weights = random_weights(shape.rows, kind, generator);
    Matrix<T> y(shape.rows, shape.width, shape.gap);
    if (kind == Weights::none) {
      swiglu(gate_up.view(), y.view());
    } else {
      swiglu(gate_up.view(), weights.vector(), y.view());
    }
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      for (std::int64_t c = 0; c < shape.width; ++c) {
        const double gate = gate_up.at(r, c);
        const double expected = weights.at(0, r) * gate * sigmoid(gate) * gate_up.at(r, c + shape.width);
        expect_close(y.at(r, c), expected, tolerance<T>(), 1e-30, "y", r, c);
      }
    }
    EXPECT_TRUE(y.gaps_untouched());
  }
}

template <typename T>
void check_backward(Weights kind, bool in_place) {
  std::mt19937 generator(2);
  for (const Case& shape : kCases) {
    auto gate_up = Matrix<T>::random(shape.rows, 2 * shape.width, generator, 4.0, shape.gap);
    auto dy = Matrix<T>::random(shape.rows, shape.width, generator, 1.0, shape.gap);
    auto weights = random_weights(shape.rows, kind, generator);
    auto gradient = gate_up;
    Matrix<float> dweights(1, shape.rows);
    const ConstTensorView source = in_place ? gradient.view() : gate_up.view();
    if (kind == Weights::none) {
      swiglu_backward(dy.view(), source, gradient.view());
    } else {
      swiglu_backward(dy.view(), source, weights.vector(), gradient.view(), dweights.vector());
    }
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      double dweight = 0.0;
      double magnitude = 0.0;
      for (std::int64_t c = 0; c < shape.width; ++c) {
        const double gate = gate_up.at(r, c);
        const double s = sigmoid(gate);
        const double slope = s * (1.0 + gate * (1.0 - s));
        const double incoming = weights.at(0, r) * dy.at(r, c) * gate_up.at(r, c + shape.width);
        // The slope crosses zero near -1.28: errors there are those of its two addends.
        const double addends = std::abs(incoming) * s * (1.0 + std::abs(gate) * (1.0 - s));
        EXPECT_NEAR(
            gradient.at(r, c), incoming * slope,
            tolerance<T>() * std::abs(incoming * slope) + (tolerance<T>() - rounding<T>()) * 2 * addends);
        expect_close(gradient.at(r, c + shape.width), weights.at(0, r) * dy.at(r, c) * gate * s,
                     tolerance<T>(), 1e-30, "dup", r, c);
        const double activated = gate * s * gate_up.at(r, c + shape.width);
        dweight += dy.at(r, c) * activated;
        magnitude += std::abs(dy.at(r, c) * activated);
      }
      if (kind == Weights::given) {  // an fp32 sum: nothing is rounded to T
        EXPECT_NEAR(dweights.at(0, r), dweight, (tolerance<T>() - rounding<T>() + 1e-6) * magnitude) << r;
      }
    }
    EXPECT_TRUE(gradient.gaps_untouched());
  }
}

TYPED_TEST(Swiglu, Forward) {
  for_each_target([] {
    check_forward<TypeParam>(Weights::none);
    check_forward<TypeParam>(Weights::given);
  });
}

TYPED_TEST(Swiglu, Backward) {
  for_each_target([] {
    check_backward<TypeParam>(Weights::none, false);
    check_backward<TypeParam>(Weights::given, false);
  });
}

TYPED_TEST(Swiglu, BackwardInPlace) {
  for_each_target([] {
    check_backward<TypeParam>(Weights::none, true);
    check_backward<TypeParam>(Weights::given, true);
  });
}

TEST(SwigluGradient, AgreesWithFiniteDifferences) {
  std::mt19937 generator(3);
  auto gate_up = Matrix<float>::random(3, 22, generator);
  auto dy = Matrix<float>::random(3, 11, generator);
  auto weights = random_weights(3, Weights::given, generator);
  Matrix<float> gradient(3, 22);
  Matrix<float> dweights(1, 3);
  swiglu_backward(dy.view(), gate_up.view(), weights.vector(), gradient.view(), dweights.vector());
  const auto loss = [&] {
    Matrix<float> y(3, 11);
    swiglu(gate_up.view(), weights.vector(), y.view());
    double sum = 0.0;
    for (std::int64_t r = 0; r < 3; ++r) {
      for (std::int64_t c = 0; c < 11; ++c) {
        sum += dy.at(r, c) * y.at(r, c);
      }
    }
    return sum;
  };
  const auto difference = [&](float& value) {
    const float kept = value;
    const float step = 1.0F / 128;
    value = kept + step;
    const double above = loss();
    value = kept - step;
    const double below = loss();
    value = kept;
    return (above - below) / (2 * step);
  };
  for (std::int64_t r = 0; r < 3; ++r) {
    for (std::int64_t c = 0; c < 22; ++c) {
      EXPECT_NEAR(gradient.at(r, c), difference(gate_up(r, c)), 5e-4) << r << ", " << c;
    }
    EXPECT_NEAR(dweights.at(0, r), difference(weights(0, r)), 5e-4) << r;
  }
}

// Far outside where exp is finite, values and gradients are their limits; NaN is not hidden.
void check_extremes() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const float gates[] = {-kInfinity, -1e30F, -200.0F, -89.0F, 89.0F, 200.0F, kInfinity, kNan};
  Matrix<float> gate_up(1, 16);
  Matrix<float> dy(1, 8);
  for (std::int64_t c = 0; c < 8; ++c) {
    gate_up(0, c) = gates[c];
    gate_up(0, c + 8) = 2.0F;
    dy(0, c) = 3.0F;
  }
  Matrix<float> y(1, 8);
  Matrix<float> gradient(1, 16);
  swiglu(gate_up.view(), y.view());
  swiglu_backward(dy.view(), gate_up.view(), gradient.view());
  for (std::int64_t c = 0; c < 4; ++c) {
    EXPECT_NEAR(y.at(0, c), 0.0, 1e-30);
    EXPECT_NEAR(gradient.at(0, c), 0.0, 1e-30);
    EXPECT_NEAR(gradient.at(0, c + 8), 0.0, 1e-30);
  }
  for (std::int64_t c = 4; c < 7; ++c) {
    EXPECT_EQ(y.at(0, c), 2.0F * gates[c]);
    EXPECT_EQ(gradient.at(0, c), 6.0);
    EXPECT_EQ(gradient.at(0, c + 8), 3.0F * gates[c]);
  }
  EXPECT_TRUE(std::isnan(y.at(0, 7)));
  EXPECT_TRUE(std::isnan(gradient.at(0, 7)));
}

TEST(SwigluExtremes, AreLimits) {
  for_each_target(check_extremes);
}

// Everything that the kernels return for rows [begin, begin + count) of the operands.
struct Results {
  Matrix<bf16> y, gradient;
  Matrix<float> dweights;
};

Results results_of(Matrix<bf16>& gate_up, Matrix<bf16>& dy, Matrix<float>& weights, std::int64_t begin,
                   std::int64_t count) {
  Results results{Matrix<bf16>(count, dy.columns()), Matrix<bf16>(count, gate_up.columns()),
                  Matrix<float>(1, count)};
  const TensorView inputs = gate_up.view().slice(begin, count);
  const TensorView row_weights = weights.vector().slice(begin, count);
  swiglu(inputs, row_weights, results.y.view());
  swiglu_backward(dy.view().slice(begin, count), inputs, row_weights, results.gradient.view(),
                  results.dweights.vector());
  return results;
}

TEST(SwigluBits, DependOnTheRowAlone) {
  for_each_target([] {
    std::mt19937 generator(5);
    auto gate_up = Matrix<bf16>::random(200, 90, generator);
    auto dy = Matrix<bf16>::random(200, 45, generator);
    auto weights = Matrix<float>::random(1, 200, generator);
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    const Results one = results_of(gate_up, dy, weights, 0, 200);
    omp_set_num_threads(3);
    const Results three = results_of(gate_up, dy, weights, 0, 200);
    omp_set_num_threads(threads);
    EXPECT_TRUE(one.y.same_bits(three.y));
    EXPECT_TRUE(one.gradient.same_bits(three.gradient));
    EXPECT_TRUE(one.dweights.same_bits(three.dweights));
    for (const std::int64_t row : {0, 7, 199}) {
      const Results alone = results_of(gate_up, dy, weights, row, 1);
      for (std::int64_t c = 0; c < 90; ++c) {
        ASSERT_EQ(alone.gradient.at(0, c), one.gradient.at(row, c));
        ASSERT_EQ(alone.y.at(0, c % 45), one.y.at(row, c % 45));
      }
      EXPECT_EQ(alone.dweights.at(0, 0), one.dweights.at(0, row));
    }
  });
}

TYPED_TEST(Swiglu, WeightsOfOneAreNone) {
  std::mt19937 generator(6);
  auto gate_up = Matrix<TypeParam>::random(9, 70, generator);
  auto ones = random_weights(9, Weights::none, generator);
  Matrix<TypeParam> weighted(9, 35);
  Matrix<TypeParam> plain(9, 35);
  swiglu(gate_up.view(), ones.vector(), weighted.view());
  swiglu(gate_up.view(), plain.view());
  EXPECT_TRUE(weighted.same_bits(plain));
}

TEST(SwigluErrors, NameTheShape) {
  Matrix<float> gate_up(2, 7);
  Matrix<float> y(2, 3);
  try {
    swiglu(gate_up.view(), y.view());
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "gate_up has shape [2, 7], but must have [2, 6]");
  }
  Matrix<float> pairs(2, 6);
  Matrix<float> three(1, 3);
  Matrix<bf16> halves(1, 2);
  EXPECT_THROW(swiglu(pairs.view(), three.vector(), y.view()), Error);
  EXPECT_THROW(swiglu(pairs.view(), halves.vector(), y.view()), Error);
  EXPECT_THROW(swiglu_backward(y.view(), pairs.view(), {}, pairs.view(), three.vector()), Error);
}

}  // namespace
}  // namespace expedite::kernels
