#include "expedite/kernels/rms_norm.h"

#include <gtest/gtest.h>
#include <omp.h>

#include "tests/kernels/matrix.h"
#include "tests/kernels/targets.h"

namespace expedite::kernels {
namespace {

template <typename T>
class RmsNorm : public testing::Test {};
using FloatTypes = testing::Types<float, bf16>;
TYPED_TEST_SUITE(RmsNorm, FloatTypes);

constexpr float kEpsilon = 1e-5F;

struct Case {
  std::int64_t tokens;
  std::int64_t groups;
  std::int64_t width;
  std::int64_t gap;
};
const Case kCases[] = {{0, 1, 8, 0},  {1, 1, 1, 0},   {5, 1, 7, 2},    {9, 3, 16, 0},
                       {4, 2, 33, 1}, {70, 4, 64, 0}, {300, 1, 67, 3}, {130, 1, 256, 0}};

// The inverse root mean square of one group in double.
template <typename T>
double reference_inverse(const Matrix<T>& x, std::int64_t t, std::int64_t g, std::int64_t width) {
  double squares = 0.0;
  for (std::int64_t i = 0; i < width; ++i) {
    squares += x.at(t, g * width + i) * x.at(t, g * width + i);
  }
  return 1.0 / std::sqrt(squares / static_cast<double>(width) + kEpsilon);
}

// One test's tensors: x, weight and dy are drawn; forward has been run into y and inverse.
template <typename T>
struct Problem {
  Problem(const Case& shape, std::mt19937& generator)
      : groups(shape.groups),
        width(shape.width),
        x(Matrix<T>::random(shape.tokens, shape.groups * shape.width, generator, 2.0, shape.gap)),
        weight(Matrix<T>::random(1, shape.width, generator)),
        dy(Matrix<T>::random(shape.tokens, shape.groups * shape.width, generator, 1.0, shape.gap)),
        y(x),
        inverse(shape.tokens, shape.groups, shape.gap) {}

  [[nodiscard]] TensorView shaped(Matrix<T>& matrix) const {
    return groups == 1 ? matrix.view() : matrix.view(groups);
  }
  [[nodiscard]] TensorView inverse_view() {
    return groups == 1
               ? TensorView(inverse.view().data(), DType::f32, {inverse.rows()}, inverse.view().row_stride())
               : inverse.view();
  }
  void forward(Matrix<T>& in, Matrix<T>& out) {
    rms_norm(shaped(in), weight.vector(), kEpsilon, shaped(out), inverse_view());
  }
  void backward(Matrix<T>& gradient, Matrix<T>& dx, bool accumulate, Matrix<float>& dweight) {
    rms_norm_backward(shaped(gradient), shaped(x), weight.vector(), inverse_view(), shaped(dx), accumulate,
                      dweight.vector());
  }

  std::int64_t groups;
  std::int64_t width;
  Matrix<T> x;
  Matrix<T> weight;
  Matrix<T> dy;
  Matrix<T> y;
  Matrix<float> inverse;
};

template <typename T>
void check_forward(bool in_place) {
  std::mt19937 generator(1);
  for (const Case& shape : kCases) {
    Problem<T> problem(shape, generator);
    problem.forward(in_place ? problem.y : problem.x, problem.y);  // y starts as a copy of x
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      for (std::int64_t g = 0; g < shape.groups; ++g) {
        const double inverse = reference_inverse(problem.x, t, g, shape.width);
        expect_close(problem.inverse.at(t, g), inverse, 1e-6, 0.0, "inverse_rms", t, g);
        for (std::int64_t i = 0; i < shape.width; ++i) {
          const std::int64_t c = g * shape.width + i;
          expect_close(problem.y.at(t, c), problem.x.at(t, c) * inverse * problem.weight.at(0, i),
                       rounding<T>() + 1e-6, 0.0, "y", t, c);
        }
      }
    }
    EXPECT_TRUE(problem.y.gaps_untouched());
    EXPECT_TRUE(problem.inverse.gaps_untouched());
  }
}

// What backward should give, in double.
template <typename T>
struct Gradients {
  explicit Gradients(const Problem<T>& problem)
      : dx(static_cast<std::size_t>(problem.x.rows() * problem.x.columns())),
        dweight(static_cast<std::size_t>(problem.width)) {
    for (std::int64_t t = 0; t < problem.x.rows(); ++t) {
      for (std::int64_t g = 0; g < problem.groups; ++g) {
        add_group(problem, t, g);
      }
    }
  }

  // y_i = x_i w_i r with r = (mean(x²) + epsilon)^(-1/2), so d r / d x_j = -r³ x_j / H.
  void add_group(const Problem<T>& problem, std::int64_t t, std::int64_t g) {
    const std::int64_t first = g * problem.width;
    const double r = reference_inverse(problem.x, t, g, problem.width);
    double through_r = 0.0;
    for (std::int64_t i = 0; i < problem.width; ++i) {
      const double dyx = problem.dy.at(t, first + i) * problem.x.at(t, first + i);
      through_r += dyx * problem.weight.at(0, i);
      dweight[static_cast<std::size_t>(i)] += dyx * r;
    }
    for (std::int64_t i = 0; i < problem.width; ++i) {
      dx[static_cast<std::size_t>(t * problem.x.columns() + first + i)] =
          problem.dy.at(t, first + i) * problem.weight.at(0, i) * r -
          through_r * r * r * r * problem.x.at(t, first + i) / static_cast<double>(problem.width);
    }
  }

  std::vector<double> dx;
  std::vector<double> dweight;
};

template <typename T>
void check_backward(bool accumulate) {
  std::mt19937 generator(2);
  for (const Case& shape : kCases) {
    Problem<T> problem(shape, generator);
    problem.forward(problem.x, problem.y);
    auto dweight = Matrix<float>::random(1, shape.width, generator);
    const auto dweight_before = dweight;
    auto dx = accumulate
                  ? Matrix<T>::random(shape.tokens, shape.groups * shape.width, generator, 1.0, shape.gap)
                  : problem.dy;  // may be dy's own memory when it is overwritten
    const auto dx_before = dx;
    problem.backward(accumulate ? problem.dy : dx, dx, accumulate, dweight);
    const Gradients<T> expected(problem);
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      for (std::int64_t c = 0; c < dx.columns(); ++c) {
        const double gradient = expected.dx[static_cast<std::size_t>(t * dx.columns() + c)];
        expect_close(dx.at(t, c), gradient + (accumulate ? dx_before.at(t, c) : 0.0), rounding<T>() + 2e-6,
                     1.0, "dx", t, c);
      }
    }
    for (std::int64_t i = 0; i < shape.width; ++i) {
      expect_close(dweight.at(0, i), expected.dweight[static_cast<std::size_t>(i)] + dweight_before.at(0, i),
                   1e-5, 1.0, "dweight", 0, i);
    }
    EXPECT_TRUE(dx.gaps_untouched());
  }
}

TYPED_TEST(RmsNorm, Forward) {
  for_each_target([] { check_forward<TypeParam>(false); });
}
TYPED_TEST(RmsNorm, ForwardInPlace) {
  for_each_target([] { check_forward<TypeParam>(true); });
}
TYPED_TEST(RmsNorm, BackwardOverwritesDy) {
  for_each_target([] { check_backward<TypeParam>(false); });
}
TYPED_TEST(RmsNorm, BackwardAccumulates) {
  for_each_target([] { check_backward<TypeParam>(true); });
}

TEST(RmsNormGradient, AgreesWithFiniteDifferences) {
  std::mt19937 generator(3);
  Problem<float> problem({3, 2, 13, 0}, generator);
  problem.forward(problem.x, problem.y);
  Matrix<float> dx(3, 26);
  Matrix<float> dweight(1, 13);
  dweight.set_all(0.0F);
  problem.backward(problem.dy, dx, false, dweight);
  const auto difference = [&](float& value) {
    const auto loss_at = [&](float moved) {
      value = moved;
      problem.forward(problem.x, problem.y);
      double sum = 0.0;
      for (std::int64_t t = 0; t < 3; ++t) {
        for (std::int64_t c = 0; c < 26; ++c) {
          sum += problem.y.at(t, c) * problem.dy.at(t, c);
        }
      }
      return sum;
    };
    const float kept = value;
    constexpr float kStep = 1.0F / 128;
    const double result = (loss_at(kept + kStep) - loss_at(kept - kStep)) / (2 * kStep);
    value = kept;
    return result;
  };
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t c = 0; c < 26; ++c) {
      EXPECT_NEAR(dx.at(t, c), difference(problem.x(t, c)), 1e-3) << t << ", " << c;
    }
  }
  for (std::int64_t i = 0; i < 13; ++i) {
    EXPECT_NEAR(dweight.at(0, i), difference(problem.weight(0, i)), 1e-3) << i;
  }
}

TYPED_TEST(RmsNorm, ThreadsDoNotChangeBits) {
  const int threads = omp_get_max_threads();
  std::mt19937 generator(4);
  Problem<TypeParam> problem({500, 1, 90, 0}, generator);
  std::vector<Matrix<float>> dweights(2, Matrix<float>(1, 90));
  std::vector<Matrix<TypeParam>> dxs(2, Matrix<TypeParam>(500, 90));
  for (std::size_t run = 0; run < 2; ++run) {
    omp_set_num_threads(run == 0 ? 1 : 3);
    problem.forward(problem.x, problem.y);
    problem.backward(problem.dy, dxs[run], false, dweights[run]);
  }
  omp_set_num_threads(threads);
  EXPECT_TRUE(dweights[0].same_bits(dweights[1]));
  EXPECT_TRUE(dxs[0].same_bits(dxs[1]));
}

TEST(RmsNormErrors, NameTheTensor) {
  Matrix<float> x(2, 8);
  Matrix<float> weight(1, 7);
  Matrix<float> inverse(1, 2);
  try {
    rms_norm(x.view(), weight.vector(), kEpsilon, x.view(), inverse.vector());
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "weight has shape [7], but must have [8]");
  }
}

}  // namespace
}  // namespace expedite::kernels
