#include "expedite/kernels/rotary.h"

#include <gtest/gtest.h>
#include <omp.h>

#include "tests/kernels/matrix.h"
#include "tests/kernels/targets.h"

namespace expedite::kernels {
namespace {

struct Case {
  std::int64_t tokens;
  std::int64_t heads;
  std::int64_t width;
  std::int64_t gap;
  std::int64_t turning;    // elements of a head; the others stay
  std::int64_t first = 0;  // of them
};
const Case kCases[] = {{0, 2, 8, 0, 8},     {1, 1, 2, 0, 2},         {3, 2, 6, 1, 6},   {20, 3, 64, 4, 64},
                       {9, 1, 128, 0, 128}, {5, 2, 50, 0, 50},       {7, 2, 64, 3, 32}, {4, 3, 11, 0, 6},
                       {2, 2, 5, 0, 0},     {6, 2, 192, 1, 64, 128}, {3, 1, 70, 5, 70}, {4, 2, 37, 0, 34, 2}};

std::vector<float> frequencies_of(std::int64_t width) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < width / 2; ++i) {
    result.push_back(
        static_cast<float>(std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(width))));
  }
  return result;
}

std::vector<std::int32_t> random_positions(std::int64_t tokens, std::mt19937& generator) {
  std::vector<std::int32_t> result(static_cast<std::size_t>(tokens));
  for (std::int32_t& position : result) {
    position = static_cast<std::int32_t>(generator() % 200000);
  }
  return result;
}

// Rotates the pairs of one row in double; angles are products rounded to fp32.
template <typename T>
std::vector<double> reference_row(const Matrix<T>& x, std::int64_t t, const Case& shape, float position,
                                  const std::vector<float>& frequencies, double factor, double sign,
                                  RotaryPairs pairs) {
  std::vector<double> row;
  for (std::int64_t c = 0; c < x.columns(); ++c) {
    row.push_back(x.at(t, c));
  }
  const std::int64_t half = shape.turning / 2;
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    for (std::int64_t i = 0; i < half; ++i) {
      const std::int64_t head = h * shape.width + shape.first;
      const std::int64_t first = head + (pairs == RotaryPairs::halves ? i : 2 * i);
      const std::int64_t second = pairs == RotaryPairs::halves ? first + half : first + 1;
      const float angle = position * frequencies[static_cast<std::size_t>(i)];
      const double cosine = factor * std::cos(static_cast<double>(angle));
      const double sine = factor * sign * std::sin(static_cast<double>(angle));
      row[static_cast<std::size_t>(first)] = x.at(t, first) * cosine - x.at(t, second) * sine;
      row[static_cast<std::size_t>(second)] = x.at(t, second) * cosine + x.at(t, first) * sine;
    }
  }
  return row;
}

template <typename T>
void check_rotary(Rotation direction, RotaryPairs pairs) {
  std::mt19937 generator(1);
  for (const Case& shape : kCases) {
    auto x = Matrix<T>::random(shape.tokens, shape.heads * shape.width, generator, 1.0, shape.gap);
    const auto before = x;
    const auto positions = random_positions(shape.tokens, generator);
    const auto frequencies = frequencies_of(shape.turning);
    rotary(x.view(shape.heads), positions, frequencies, 1.25F, direction,
           {.pairs = pairs, .first = shape.first});
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      const auto position = static_cast<float>(positions[static_cast<std::size_t>(t)]);
      const auto expected = reference_row(before, t, shape, position, frequencies, 1.25,
                                          direction == Rotation::forward ? 1.0 : -1.0, pairs);
      for (std::int64_t c = 0; c < x.columns(); ++c) {
        expect_close(x.at(t, c), expected[static_cast<std::size_t>(c)], rounding<T>() + 1e-6, 1.0, "x", t, c);
      }
    }
    EXPECT_TRUE(x.gaps_untouched());
  }
}

TEST(Rotary, TurnsPairs) {
  for (const Rotation direction : {Rotation::forward, Rotation::backward}) {
    for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::neighbours}) {
      for_each_target([&] { check_rotary<float>(direction, pairs); });
      for_each_target([&] { check_rotary<bf16>(direction, pairs); });
    }
  }
}

// The products of queries and keys, which is all that attention sees, are those of the other order.
TEST(Rotary, ScoresDoNotDependOnTheOrderOfPairs) {
  std::mt19937 generator(4);
  constexpr std::int64_t kWidth = 22;
  const auto neighbours = Matrix<float>::random(12, kWidth, generator);
  Matrix<float> halves(12, kWidth);
  for (std::int64_t t = 0; t < 12; ++t) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      halves(t, c / 2 + c % 2 * kWidth / 2) = static_cast<float>(neighbours.at(t, c));
    }
  }
  const auto positions = random_positions(12, generator);
  const auto scores = [&](Matrix<float> x, RotaryPairs pairs) {
    rotary(x.view(1), positions, frequencies_of(kWidth), 1.0F, Rotation::forward, {.pairs = pairs});
    std::vector<double> products;
    for (std::int64_t a = 0; a < 12; ++a) {
      for (std::int64_t b = 0; b < 12; ++b) {
        products.push_back(0.0);
        for (std::int64_t c = 0; c < kWidth; ++c) {
          products.back() += x.at(a, c) * x.at(b, c);
        }
      }
    }
    return products;
  };
  const auto of_neighbours = scores(neighbours, RotaryPairs::neighbours);
  const auto of_halves = scores(halves, RotaryPairs::halves);
  for (std::size_t i = 0; i < of_halves.size(); ++i) {
    EXPECT_NEAR(of_neighbours[i], of_halves[i], 1e-4);
  }
}

// DeepSeek's key has one rotary head for all query heads, at the end of a wider matrix.
TEST(Rotary, TurnsASliceOfAWiderMatrix) {
  std::mt19937 generator(5);
  auto wide = Matrix<bf16>::random(30, 80, generator);
  const auto before = wide;
  Matrix<bf16> narrow(30, 16);
  for (std::int64_t t = 0; t < 30; ++t) {
    for (std::int64_t c = 0; c < 16; ++c) {
      narrow(t, c) = wide(t, 64 + c);
    }
  }
  const auto positions = random_positions(30, generator);
  const TensorView slice = wide.view().columns_slice(64, 16);
  const RotaryLayout layout = {.pairs = RotaryPairs::neighbours};
  rotary(TensorView(slice.data(), slice.dtype(), {30, 1, 16}, slice.row_stride()), positions,
         frequencies_of(16), 1.0F, Rotation::forward, layout);
  rotary(narrow.view(1), positions, frequencies_of(16), 1.0F, Rotation::forward, layout);
  for (std::int64_t t = 0; t < 30; ++t) {
    for (std::int64_t c = 0; c < 80; ++c) {
      ASSERT_EQ(wide.at(t, c), c < 64 ? before.at(t, c) : narrow.at(t, c - 64));
    }
  }
}

void check_gradient(const RotaryLayout& layout) {
  std::mt19937 generator(2);
  const Case shape{2, 2, 6, 0, 4};
  auto x = Matrix<float>::random(2, 12, generator);
  auto gradient = Matrix<float>::random(2, 12, generator);
  const auto dy = gradient;
  const std::vector<std::int32_t> positions = {3, 17};
  const auto frequencies = frequencies_of(shape.turning);
  rotary(gradient.view(2), positions, frequencies, 1.5F, Rotation::backward, layout);
  const auto loss = [&] {
    auto y = x;
    rotary(y.view(2), positions, frequencies, 1.5F, Rotation::forward, layout);
    double sum = 0.0;
    for (std::int64_t t = 0; t < 2; ++t) {
      for (std::int64_t c = 0; c < 12; ++c) {
        sum += y.at(t, c) * dy.at(t, c);
      }
    }
    return sum;
  };
  for (std::int64_t t = 0; t < 2; ++t) {
    for (std::int64_t c = 0; c < 12; ++c) {
      const float kept = x(t, c);
      x(t, c) = kept + 0.5F;  // linear: a wide step costs no accuracy
      const double above = loss();
      x(t, c) = kept - 0.5F;
      EXPECT_NEAR(gradient.at(t, c), above - loss(), 1e-5);
      x(t, c) = kept;
    }
  }
}

TEST(Rotary, GradientAgreesWithFiniteDifferences) {
  for (const std::int64_t first : {0, 1, 2}) {
    check_gradient({.pairs = RotaryPairs::halves, .first = first});
    check_gradient({.pairs = RotaryPairs::neighbours, .first = first});
  }
}

TEST(Rotary, ThreadsDoNotChangeBits) {
  std::mt19937 generator(3);
  auto one = Matrix<bf16>::random(100, 3 * 20, generator);
  auto three = one;
  auto one_of_neighbours = one;
  auto three_of_neighbours = one;
  const auto positions = random_positions(100, generator);
  const RotaryLayout layout = {.pairs = RotaryPairs::neighbours, .first = 1};
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  rotary(one.view(3), positions, frequencies_of(20), 1.0F, Rotation::forward);
  rotary(one_of_neighbours.view(3), positions, frequencies_of(18), 1.0F, Rotation::forward, layout);
  omp_set_num_threads(3);
  rotary(three.view(3), positions, frequencies_of(20), 1.0F, Rotation::forward);
  rotary(three_of_neighbours.view(3), positions, frequencies_of(18), 1.0F, Rotation::forward, layout);
  omp_set_num_threads(threads);
  EXPECT_TRUE(one.same_bits(three));
  EXPECT_TRUE(one_of_neighbours.same_bits(three_of_neighbours));
}

TEST(RotaryErrors, NameWhatDoesNotFit) {
  Matrix<float> x(2, 8);
  const std::vector<std::int32_t> positions = {0, 1};
  const auto message = [&](std::span<const std::int32_t> given, std::int64_t pairs,
                           std::int64_t first = 0) -> std::string {
    try {
      rotary(x.view(2), given, std::vector<float>(static_cast<std::size_t>(pairs)), 1.0F, Rotation::forward,
             {.first = first});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message(positions, 2), "no error");
  EXPECT_EQ(message({positions.data(), 1}, 2), "1 positions for 2 tokens");
  EXPECT_EQ(message(positions, 1), "no error");
  EXPECT_EQ(message(positions, 1, 2), "no error");
  EXPECT_EQ(message(positions, 1, 3), "2 elements from 3 on do not lie in heads of 4");
  EXPECT_EQ(message(positions, 1, -1), "2 elements from -1 on do not lie in heads of 4");
  EXPECT_EQ(message(positions, 4), "4 inverse frequencies for heads of 4");
}

}  // namespace
}  // namespace expedite::kernels
