// The clamped activation of gpt-oss, and SwiGLU with other parameters than its own.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "expedite/kernels/swiglu.h"
#include "tests/kernels/matrix.h"
#include "tests/kernels/targets.h"

namespace expedite::kernels {
namespace {

constexpr GluOptions kGptOss = {.alpha = 1.702F, .limit = 7.0F, .up_offset = 1.0F};
constexpr GluOptions kOptions[] = {kGptOss,
                                   {.alpha = 1.702F},
                                   {.limit = 2.0F},
                                   {.up_offset = -0.5F},
                                   {.alpha = 0.5F, .limit = 1.0F, .up_offset = 3.0F}};

struct ClampedCase {
  std::int64_t rows;
  std::int64_t width;
  std::int64_t gap;
};
const ClampedCase kCases[] = {{0, 16, 0}, {1, 1, 0},   {4, 0, 1},   {3, 5, 2},
                              {7, 16, 0}, {20, 33, 1}, {40, 176, 5}};

// What the sigmoid adds to a rounding: 14 good bits for a bf16. Its argument, alpha times gate, is itself
// rounded.
template <typename T>
double error_of_sigmoid(double gate, const GluOptions& options) {
  return (sizeof(T) == sizeof(bf16) ? 1e-4 : 6e-7) +
         1e-7 * std::abs(static_cast<double>(options.alpha) * gate);
}

// One element in double.
struct Element {
  double activated, dgate, dup;  // gradients of `activated`
};

Element element_of(double raw_gate, double raw_up, const GluOptions& options) {
  const double limit = options.limit;
  const double gate = std::min(raw_gate, limit);
  const double up = std::clamp(raw_up, -limit, limit) + static_cast<double>(options.up_offset);
  const double alpha = options.alpha;
  const double s = 1.0 / (1.0 + std::exp(-alpha * gate));
  return {up * gate * s, raw_gate <= limit ? up * (s + alpha * gate * s * (1.0 - s)) : 0.0,
          raw_up >= -limit && raw_up <= limit ? gate * s : 0.0};
}

// Some values lie on the limits, where gradients pass.
template <typename T>
Matrix<T> random_gate_up(const ClampedCase& shape, const GluOptions& options, std::mt19937& generator) {
  auto gate_up = Matrix<T>::random(shape.rows, 2 * shape.width, generator, 4.0, shape.gap);
  const float limit = std::isfinite(options.limit) ? options.limit : 5.0F;
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    for (std::int64_t c = 0; c < 2 * shape.width; ++c) {
      if (generator() % 8 == 0) {
        gate_up(r, c) = T(generator() % 2 == 0 ? limit : -limit);
      }
    }
  }
  return gate_up;
}

template <typename T>
void check_clamped(const GluOptions& options, bool in_place) {
  std::mt19937 generator(1);
  for (const ClampedCase& shape : kCases) {
    auto gate_up = random_gate_up<T>(shape, options, generator);
    auto weights = Matrix<float>::random(1, shape.rows, generator);
    auto dy = Matrix<T>::random(shape.rows, shape.width, generator, 1.0, shape.gap);
    Matrix<T> y(shape.rows, shape.width, shape.gap);
    Matrix<float> dweights(1, shape.rows);
    auto gradient = gate_up;
    swiglu(gate_up.view(), weights.vector(), y.view(), options);
    swiglu_backward(dy.view(), in_place ? gradient.view() : gate_up.view(), weights.vector(), gradient.view(),
                    dweights.vector(), options);
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      const double weight = weights.at(0, r);
      double dweight = 0.0;
      double magnitude = 0.0;
      double largest_error = 0.0;
      for (std::int64_t c = 0; c < shape.width; ++c) {
        const double gate = gate_up.at(r, c);
        const Element element = element_of(gate, gate_up.at(r, c + shape.width), options);
        const double incoming = weight * dy.at(r, c);
        const double error = error_of_sigmoid<T>(gate, options);
        const double tolerance = rounding<T>() + error;
        largest_error = std::max(largest_error, error);
        expect_close(y.at(r, c), weight * element.activated, tolerance, 1e-30, "y", r, c);
        // The slope crosses zero near -1.28 / alpha: errors there are those of its addends.
        const double addends =
            std::abs(incoming) * (std::abs(gate_up.at(r, c + shape.width)) + std::abs(options.up_offset));
        EXPECT_NEAR(gradient.at(r, c), incoming * element.dgate,
                    tolerance * std::abs(incoming * element.dgate) + error * 4 * addends);
        expect_close(gradient.at(r, c + shape.width), incoming * element.dup, tolerance, 1e-30, "dup", r, c);
        dweight += dy.at(r, c) * element.activated;
        magnitude += std::abs(dy.at(r, c) * element.activated);
      }
      EXPECT_NEAR(dweights.at(0, r), dweight, (largest_error + 1e-6) * magnitude) << r;
    }
    EXPECT_TRUE(y.gaps_untouched());
    EXPECT_TRUE(gradient.gaps_untouched());
  }
}

TEST(SwigluClamped, AgreesWithTheReference) {
  for (const GluOptions& options : kOptions) {
    for_each_target([&] {
      check_clamped<float>(options, false);
      check_clamped<bf16>(options, false);
      check_clamped<float>(options, true);
      check_clamped<bf16>(options, true);
    });
  }
}

TEST(SwigluClamped, GradientAgreesWithFiniteDifferences) {
  std::mt19937 generator(3);
  auto gate_up = Matrix<float>::random(3, 22, generator, 4.0);
  auto dy = Matrix<float>::random(3, 11, generator);
  auto weights = Matrix<float>::random(1, 3, generator);
  Matrix<float> gradient(3, 22);
  Matrix<float> dweights(1, 3);
  const GluOptions options = {.alpha = 1.702F, .limit = 3.0F, .up_offset = 1.0F};
  swiglu_backward(dy.view(), gate_up.view(), weights.vector(), gradient.view(), dweights.vector(), options);
  const auto loss = [&] {
    Matrix<float> y(3, 11);
    swiglu(gate_up.view(), weights.vector(), y.view(), options);
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
      ASSERT_GT(std::abs(std::abs(gate_up.at(r, c)) - 3.0), 1.0 / 128);  // no kink inside a step
      EXPECT_NEAR(gradient.at(r, c), difference(gate_up(r, c)), 2e-3) << r << ", " << c;
    }
    EXPECT_NEAR(dweights.at(0, r), difference(weights(0, r)), 2e-3) << r;
  }
}

void check_clamped_extremes() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const float values[] = {-kInfinity, -1e30F, -200.0F, -8.0F, 8.0F, 200.0F, kInfinity, kNan};
  Matrix<float> gate_up(8, 16);
  Matrix<float> dy(8, 8);
  dy.set_all(3.0F);
  for (std::int64_t r = 0; r < 8; ++r) {
    for (std::int64_t c = 0; c < 8; ++c) {
      gate_up(r, c) = values[c];
      gate_up(r, c + 8) = values[r];
    }
  }
  Matrix<float> y(8, 8);
  Matrix<float> gradient(8, 16);
  swiglu(gate_up.view(), {}, y.view(), kGptOss);
  swiglu_backward(dy.view(), gate_up.view(), {}, gradient.view(), {}, kGptOss);
  for (std::int64_t r = 0; r < 8; ++r) {
    for (std::int64_t c = 0; c < 8; ++c) {
      if (r == 7 || c == 7) {
        EXPECT_TRUE(std::isnan(y.at(r, c)));
        continue;
      }
      const double gate = std::min(values[c], 7.0F);
      const double s = gate < -100.0 ? 0.0 : 1.0 / (1.0 + std::exp(-1.702 * gate));
      const double glu = s == 0.0 ? 0.0 : gate * s;
      expect_close(y.at(r, c), glu * (r < 4 ? -6.0 : 8.0), 1e-5, 1e-25, "y", r, c);
      EXPECT_EQ(gradient.at(r, c + 8), 0.0);  // every up is beyond the limit
      if (c >= 4) {
        EXPECT_EQ(gradient.at(r, c), 0.0);
      } else {
        EXPECT_TRUE(std::isfinite(gradient.at(r, c)));
      }
    }
  }
}

TEST(SwigluClamped, ExtremesAreClampedAndNanIsNotHidden) {
  for_each_target(check_clamped_extremes);
}

// Without a limit large gates are their own activation.
TEST(SwigluClamped, UnlimitedGatesMayBeInfinite) {
  for_each_target([] {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    Matrix<float> gate_up(1, 4);
    Matrix<float> dy(1, 2);
    dy.set_all(3.0F);
    gate_up(0, 0) = kInfinity;
    gate_up(0, 1) = -kInfinity;
    gate_up(0, 2) = 2.0F;
    gate_up(0, 3) = 2.0F;
    Matrix<float> y(1, 2);
    Matrix<float> gradient(1, 4);
    swiglu(gate_up.view(), {}, y.view(), {.alpha = 2.0F});
    swiglu_backward(dy.view(), gate_up.view(), {}, gradient.view(), {}, {.alpha = 2.0F});
    EXPECT_EQ(y.at(0, 0), kInfinity);
    EXPECT_NEAR(y.at(0, 1), 0.0, 1e-30);
    EXPECT_EQ(gradient.at(0, 0), 6.0);
    EXPECT_NEAR(gradient.at(0, 1), 0.0, 1e-30);
    EXPECT_EQ(gradient.at(0, 2), kInfinity);
    EXPECT_NEAR(gradient.at(0, 3), 0.0, 1e-30);
  });
}

TEST(SwigluClamped, BitsDependOnTheRowAlone) {
  std::mt19937 generator(5);
  auto gate_up = Matrix<bf16>::random(200, 90, generator, 4.0);
  auto dy = Matrix<bf16>::random(200, 45, generator);
  const auto run = [&](std::int64_t begin, std::int64_t count) {
    Matrix<bf16> y(count, 45);
    Matrix<bf16> gradient(count, 90);
    swiglu(gate_up.view().slice(begin, count), {}, y.view(), kGptOss);
    swiglu_backward(dy.view().slice(begin, count), gate_up.view().slice(begin, count), {}, gradient.view(),
                    {}, kGptOss);
    return std::pair(y, gradient);
  };
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto one = run(0, 200);
  omp_set_num_threads(3);
  const auto three = run(0, 200);
  omp_set_num_threads(threads);
  EXPECT_TRUE(one.first.same_bits(three.first));
  EXPECT_TRUE(one.second.same_bits(three.second));
  const auto alone = run(199, 1);
  for (std::int64_t c = 0; c < 90; ++c) {
    ASSERT_EQ(alone.second.at(0, c), one.second.at(199, c));
    ASSERT_EQ(alone.first.at(0, c % 45), one.first.at(199, c % 45));
  }
}

TEST(SwigluClamped, DefaultOptionsAreSwiglu) {
  std::mt19937 generator(6);
  auto gate_up = Matrix<bf16>::random(9, 70, generator);
  Matrix<bf16> given(9, 35);
  Matrix<bf16> plain(9, 35);
  swiglu(gate_up.view(), {}, given.view(), GluOptions{});
  swiglu(gate_up.view(), plain.view());
  EXPECT_TRUE(given.same_bits(plain));
}

TEST(SwigluClamped, ParametersThatDoNotFitAreErrors) {
  Matrix<float> gate_up(2, 6);
  Matrix<float> y(2, 3);
  const auto run = [&](const GluOptions& options) { swiglu(gate_up.view(), {}, y.view(), options); };
  EXPECT_NO_THROW(run(kGptOss));
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const float alpha : {0.0F, -1.0F, kNan, std::numeric_limits<float>::infinity()}) {
    EXPECT_THROW(run({.alpha = alpha}), Error);
  }
  for (const float limit : {0.0F, -7.0F, kNan}) {
    EXPECT_THROW(run({.limit = limit}), Error);
  }
  EXPECT_THROW(run({.up_offset = kNan}), Error);
  EXPECT_THROW(swiglu_backward(y.view(), gate_up.view(), {}, gate_up.view(), {}, {.limit = 0.0F}), Error);
}

}  // namespace
}  // namespace expedite::kernels
