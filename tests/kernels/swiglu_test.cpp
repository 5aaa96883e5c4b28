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

template <typename T>
void check_forward() {
  std::mt19937 generator(1);
  for (const Case& shape : kCases) {
    auto gate_up = Matrix<T>::random(shape.rows, 2 * shape.width, generator, 4.0, shape.gap);
    Matrix<T> y(shape.rows, shape.width, shape.gap);
    swiglu(gate_up.view(), y.view());
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      for (std::int64_t c = 0; c < shape.width; ++c) {
        const double gate = gate_up.at(r, c);
        const double expected = gate * sigmoid(gate) * gate_up.at(r, c + shape.width);
        expect_close(y.at(r, c), expected, tolerance<T>(), 1e-30, "y", r, c);
      }
    }
    EXPECT_TRUE(y.gaps_untouched());
  }
}

template <typename T>
void check_backward(bool in_place) {
  std::mt19937 generator(2);
  for (const Case& shape : kCases) {
    auto gate_up = Matrix<T>::random(shape.rows, 2 * shape.width, generator, 4.0, shape.gap);
    auto dy = Matrix<T>::random(shape.rows, shape.width, generator, 1.0, shape.gap);
    auto gradient = gate_up;
    swiglu_backward(dy.view(), in_place ? gradient.view() : gate_up.view(), gradient.view());
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      for (std::int64_t c = 0; c < shape.width; ++c) {
        const double gate = gate_up.at(r, c);
        const double s = sigmoid(gate);
        const double slope = s * (1.0 + gate * (1.0 - s));
        const double incoming = dy.at(r, c) * gate_up.at(r, c + shape.width);
        // The slope crosses zero near -1.28: errors there are those of its two addends.
        const double addends = std::abs(incoming) * s * (1.0 + std::abs(gate) * (1.0 - s));
        EXPECT_NEAR(
            gradient.at(r, c), incoming * slope,
            tolerance<T>() * std::abs(incoming * slope) + (tolerance<T>() - rounding<T>()) * 2 * addends);
        expect_close(gradient.at(r, c + shape.width), dy.at(r, c) * gate * s, tolerance<T>(), 1e-30, "dup", r,
                     c);
      }
    }
    EXPECT_TRUE(gradient.gaps_untouched());
  }
}

TYPED_TEST(Swiglu, Forward) {
  for_each_target(check_forward<TypeParam>);
}

TYPED_TEST(Swiglu, Backward) {
  for_each_target([] { check_backward<TypeParam>(false); });
}

TYPED_TEST(Swiglu, BackwardInPlace) {
  for_each_target([] { check_backward<TypeParam>(true); });
}

TEST(SwigluGradient, AgreesWithFiniteDifferences) {
  std::mt19937 generator(3);
  auto gate_up = Matrix<float>::random(3, 22, generator);
  auto dy = Matrix<float>::random(3, 11, generator);
  Matrix<float> gradient(3, 22);
  swiglu_backward(dy.view(), gate_up.view(), gradient.view());
  const auto loss = [&] {
    Matrix<float> y(3, 11);
    swiglu(gate_up.view(), y.view());
    double sum = 0.0;
    for (std::int64_t r = 0; r < 3; ++r) {
      for (std::int64_t c = 0; c < 11; ++c) {
        sum += dy.at(r, c) * y.at(r, c);
      }
    }
    return sum;
  };
  for (std::int64_t r = 0; r < 3; ++r) {
    for (std::int64_t c = 0; c < 22; ++c) {
      const float kept = gate_up(r, c);
      const float step = 1.0F / 128;
      gate_up(r, c) = kept + step;
      const double above = loss();
      gate_up(r, c) = kept - step;
      const double below = loss();
      gate_up(r, c) = kept;
      EXPECT_NEAR(gradient.at(r, c), (above - below) / (2 * step), 5e-4) << r << ", " << c;
    }
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

TEST(SwigluThreads, DoNotChangeBits) {
  std::mt19937 generator(5);
  auto gate_up = Matrix<bf16>::random(200, 90, generator);
  Matrix<bf16> one(200, 45);
  Matrix<bf16> three(200, 45);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  swiglu(gate_up.view(), one.view());
  omp_set_num_threads(3);
  swiglu(gate_up.view(), three.view());
  omp_set_num_threads(threads);
  EXPECT_TRUE(one.same_bits(three));
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
}

}  // namespace
}  // namespace expedite::kernels
