#include "expedite/kernels/permute.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <numeric>

#include "tests/kernels/matrix.h"
#include "tests/kernels/targets.h"

namespace expedite::kernels {
namespace {

template <typename T>
class Permute : public testing::Test {};
using FloatTypes = testing::Types<float, bf16>;
TYPED_TEST_SUITE(Permute, FloatTypes);

struct Case {
  std::int64_t tokens;
  std::int64_t columns;
  std::int64_t k;
  std::int64_t gap;
};
const Case kCases[] = {{0, 8, 2, 0},   {1, 1, 1, 0},    {3, 7, 2, 3},    {5, 16, 4, 0},
                       {33, 67, 8, 5}, {70, 129, 3, 1}, {64, 256, 4, 0}, {9, 0, 2, 1}};

// Positions of T * k rows in random order, some of them missing.
Matrix<std::int32_t> random_positions(const Case& shape, std::mt19937& generator) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(shape.tokens * shape.k));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), generator);
  Matrix<std::int32_t> result(shape.tokens, shape.k, shape.gap);
  std::size_t next = 0;
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    for (std::int64_t j = 0; j < shape.k; ++j) {
      const std::int32_t position = order[next++];
      result(t, j) = position % 7 == 3 ? -1 : position;
    }
  }
  return result;
}

TYPED_TEST(Permute, GathersRowsAndZeros) {
  std::mt19937 generator(1);
  for (const Case& shape : kCases) {
    auto src = Matrix<TypeParam>::random(shape.tokens + 2, shape.columns, generator, 1.0, shape.gap);
    const std::int64_t rows = shape.tokens * shape.k;
    std::vector<std::int32_t> index(static_cast<std::size_t>(rows));
    for (auto& entry : index) {
      entry = static_cast<std::int32_t>(generator() % (shape.tokens + 3)) - 1;
    }
    Matrix<TypeParam> dst(rows, shape.columns, 2 * shape.gap);
    gather_rows(src.view(), std::span<const std::int32_t>(index), dst.view());
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int32_t from = index[static_cast<std::size_t>(r)];
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        ASSERT_EQ(dst.at(r, c), from < 0 ? 0.0 : src.at(from, c));
      }
    }
    EXPECT_TRUE(dst.gaps_untouched());
  }
}

// The sum of a token's rows, and of the magnitudes of its addends, which rounding errors are measured by.
template <typename T>
std::pair<double, double> reference_sum(const Matrix<T>& rows, const Matrix<std::int32_t>& position,
                                        const Matrix<float>& weights, double residual, std::int64_t t,
                                        std::int64_t c) {
  double sum = residual;
  double magnitude = std::abs(residual);
  for (std::int64_t j = 0; j < position.columns(); ++j) {
    const auto row = static_cast<std::int64_t>(position.at(t, j));
    if (row >= 0) {
      sum += weights.at(t, j) * rows.at(row, c);
      magnitude += std::abs(weights.at(t, j) * rows.at(row, c));
    }
  }
  return {sum, magnitude};
}

template <typename T>
void check_unpermute() {
  std::mt19937 generator(2);
  for (const Case& shape : kCases) {
    for (const bool weighted : {true, false}) {
      for (const bool with_residual : {true, false}) {
        auto rows = Matrix<T>::random(shape.tokens * shape.k, shape.columns, generator, 1.0, shape.gap);
        auto position = random_positions(shape, generator);
        auto weights = Matrix<float>::random(shape.tokens, shape.k, generator, 0.5, shape.gap);
        auto residual = Matrix<T>::random(shape.tokens, shape.columns, generator, 1.0, shape.gap);
        if (!weighted) {
          weights.set_all(1.0F);
        }
        auto dst = residual;  // the residual may be the destination itself
        unpermute(rows.view(), position.view(), weighted ? weights.view() : TensorView(),
                  with_residual ? dst.view() : TensorView(), dst.view());
        for (std::int64_t t = 0; t < shape.tokens; ++t) {
          for (std::int64_t c = 0; c < shape.columns; ++c) {
            const auto [sum, magnitude] =
                reference_sum(rows, position, weights, with_residual ? residual.at(t, c) : 0.0, t, c);
            const double tolerance = rounding<T>() * std::abs(sum) + 1e-6 * magnitude;
            ASSERT_NEAR(dst.at(t, c), sum, tolerance) << t << ", " << c;
          }
        }
        EXPECT_TRUE(dst.gaps_untouched());
      }
    }
  }
}

TYPED_TEST(Permute, SumsTheRowsOfAToken) {
  for_each_target(check_unpermute<TypeParam>);
}

template <typename T>
void check_unpermute_backward() {
  std::mt19937 generator(3);
  for (const Case& shape : kCases) {
    const std::int64_t count = shape.tokens * shape.k;
    auto rows = Matrix<T>::random(count, shape.columns, generator, 1.0, shape.gap);
    auto position = random_positions(shape, generator);
    auto weights = Matrix<float>::random(shape.tokens, shape.k, generator, 0.5, shape.gap);
    auto dy = Matrix<T>::random(shape.tokens, shape.columns, generator, 1.0, shape.gap);
    Matrix<T> drows(count, shape.columns, shape.gap);
    Matrix<float> dweights(shape.tokens, shape.k, shape.gap);
    const Matrix<T> before = drows;
    unpermute_backward(dy.view(), rows.view(), position.view(), weights.view(), drows.view(),
                       dweights.view());
    std::vector<bool> named(static_cast<std::size_t>(count), false);
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      for (std::int64_t j = 0; j < shape.k; ++j) {
        const auto row = static_cast<std::int64_t>(position.at(t, j));
        double dot = 0.0;
        double magnitude = 0.0;
        for (std::int64_t c = 0; row >= 0 && c < shape.columns; ++c) {
          const double expected = weights.at(t, j) * dy.at(t, c);
          ASSERT_NEAR(drows.at(row, c), expected, 2 * rounding<T>() * std::abs(expected));
          dot += dy.at(t, c) * rows.at(row, c);
          magnitude += std::abs(dy.at(t, c) * rows.at(row, c));
        }
        ASSERT_NEAR(dweights.at(t, j), dot, 1e-6 * magnitude);
        if (row >= 0) {
          named[static_cast<std::size_t>(row)] = true;
        }
      }
    }
    for (std::int64_t r = 0; r < count; ++r) {
      for (std::int64_t c = 0; !named[static_cast<std::size_t>(r)] && c < shape.columns; ++c) {
        ASSERT_EQ(drows.at(r, c), before.at(r, c)) << "a row that no token names was written";
      }
    }
    EXPECT_TRUE(drows.gaps_untouched());
    EXPECT_TRUE(dweights.gaps_untouched());
  }
}

TYPED_TEST(Permute, GradientsOfRowsAndWeights) {
  for_each_target(check_unpermute_backward<TypeParam>);
}

TEST(PermuteGradient, AgreesWithFiniteDifferences) {
  std::mt19937 generator(4);
  const Case shape{6, 19, 3, 0};
  auto rows = Matrix<float>::random(shape.tokens * shape.k, shape.columns, generator);
  auto position = random_positions(shape, generator);
  auto weights = Matrix<float>::random(shape.tokens, shape.k, generator);
  auto dy = Matrix<float>::random(shape.tokens, shape.columns, generator);
  Matrix<float> drows(rows.rows(), rows.columns());
  Matrix<float> dweights(shape.tokens, shape.k);
  drows.set_all(0.0F);
  unpermute_backward(dy.view(), rows.view(), position.view(), weights.view(), drows.view(), dweights.view());

  const auto loss = [&] {
    Matrix<float> y(shape.tokens, shape.columns);
    unpermute(rows.view(), position.view(), weights.view(), TensorView(), y.view());
    double sum = 0.0;
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        sum += y.at(t, c) * dy.at(t, c);
      }
    }
    return sum;
  };
  const auto difference = [&](float& value) {
    const float kept = value;
    value = kept + 0.5F;  // the loss is linear in each value: a wide step costs no accuracy
    const double above = loss();
    value = kept - 0.5F;
    const double below = loss();
    value = kept;
    return above - below;
  };
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    for (std::int64_t j = 0; j < shape.k; ++j) {
      EXPECT_NEAR(dweights.at(t, j), difference(weights(t, j)), 1e-4);
    }
  }
  for (std::int64_t r = 0; r < rows.rows(); ++r) {
    EXPECT_NEAR(drows.at(r, r % 19), difference(rows(r, r % 19)), 1e-4);
  }
}

TYPED_TEST(Permute, ThreadsDoNotChangeBits) {
  std::mt19937 generator(5);
  const Case shape{300, 45, 4, 3};
  auto rows = Matrix<TypeParam>::random(shape.tokens * shape.k, shape.columns, generator);
  auto position = random_positions(shape, generator);
  auto weights = Matrix<float>::random(shape.tokens, shape.k, generator);
  Matrix<TypeParam> one(shape.tokens, shape.columns);
  Matrix<TypeParam> three(shape.tokens, shape.columns);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  unpermute(rows.view(), position.view(), weights.view(), TensorView(), one.view());
  omp_set_num_threads(3);
  unpermute(rows.view(), position.view(), weights.view(), TensorView(), three.view());
  omp_set_num_threads(threads);
  EXPECT_TRUE(one.same_bits(three));
}

TEST(PermuteErrors, NameTheWrongPosition) {
  Matrix<float> src(3, 4);
  Matrix<float> dst(2, 4);
  Matrix<std::int32_t> position(2, 1);
  position(0, 0) = 1;
  position(1, 0) = 3;
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message([&] { unpermute(src.view(), position.view(), TensorView(), TensorView(), dst.view()); }),
            "row position [1, 0] is 3, but there are 3 rows");
  EXPECT_EQ(message([&] { gather_rows(src.view(), position.view().reshape({2}), dst.view()); }),
            "row position [1, 0] is 3, but there are 3 rows");
  Matrix<bf16> other(2, 4);
  EXPECT_EQ(message([&] { gather_rows(src.view(), position.view().reshape({2}), other.view()); }),
            "dst is bf16, but must be f32");
  Matrix<float> narrow(2, 3);
  EXPECT_THROW(unpermute(src.view(), position.view(), TensorView(), TensorView(), narrow.view()), Error);
}

}  // namespace
}  // namespace expedite::kernels
