#include "expedite/kernels/elementwise.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <bit>
#include <limits>

#include "tests/kernels/matrix.h"
#include "tests/kernels/targets.h"

namespace expedite::kernels {
namespace {

struct Case {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t gap;
};
const Case kCases[] = {{0, 5, 0},  {1, 0, 0},   {1, 1, 0},     {3, 7, 2},
                       {5, 16, 0}, {33, 65, 3}, {200, 130, 0}, {1, 70001, 0}};

template <typename From, typename To>
void check_pair() {
  std::mt19937 generator(1);
  for (const Case& shape : kCases) {
    auto src = Matrix<From>::random(shape.rows, shape.columns, generator, 3.0, shape.gap);
    Matrix<To> copy(shape.rows, shape.columns, 2 * shape.gap);
    auto sum = Matrix<To>::random(shape.rows, shape.columns, generator, 1.0, shape.gap);
    const auto before = sum;
    convert(src.view(), copy.view());
    add(src.view(), sum.view());
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        const auto value = static_cast<float>(src.at(r, c));
        ASSERT_EQ(copy.at(r, c), static_cast<float>(To(value)));
        ASSERT_EQ(sum.at(r, c), static_cast<float>(To(static_cast<float>(before.at(r, c)) + value)));
      }
    }
    EXPECT_TRUE(copy.gaps_untouched());
    EXPECT_TRUE(sum.gaps_untouched());
  }
}

TEST(Elementwise, ConvertsAndAddsBetweenTypes) {
  for_each_target(check_pair<float, float>);
  for_each_target(check_pair<float, bf16>);
  for_each_target(check_pair<bf16, float>);
  for_each_target(check_pair<bf16, bf16>);
}

// The vector code against the scalar conversion, whose own tests are tensor's: ties, overflow to infinity,
// denormals, and NaNs whose payload would carry into the sign.
void check_rounding() {
  std::vector<std::uint32_t> words = {0x00000000, 0x80000000, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF,
                                      0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF,
                                      0xFFFFFFFF, 0x7F800001, 0x00000001, 0x80008000, 0x00018000};
  std::mt19937 generator(2);
  for (int i = 0; i < 5000; ++i) {
    words.push_back(static_cast<std::uint32_t>(generator()));
  }
  const auto count = static_cast<std::int64_t>(words.size());
  Matrix<float> src(1, count);
  Matrix<bf16> dst(1, count);
  for (std::int64_t i = 0; i < count; ++i) {
    src(0, i) = std::bit_cast<float>(words[static_cast<std::size_t>(i)]);
  }
  convert(src.view(), dst.view());
  for (std::int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(dst(0, i).bits, bf16(src(0, i)).bits) << std::hex << words[static_cast<std::size_t>(i)];
  }
}

TEST(Elementwise, RoundsToNearestEven) {
  for_each_target(check_rounding);
}

TEST(Elementwise, FillsWithZero) {
  for (const Case& shape : kCases) {
    Matrix<float> wide(shape.rows, shape.columns, shape.gap);
    Matrix<std::int32_t> whole(shape.rows, shape.columns, shape.gap);
    fill_zero(wide.view());
    fill_zero(whole.view());
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        ASSERT_EQ(wide.at(r, c), 0.0);
        ASSERT_EQ(whole.at(r, c), 0.0);
      }
    }
    EXPECT_TRUE(wide.gaps_untouched());
    EXPECT_TRUE(whole.gaps_untouched());
  }
}

template <typename T>
void check_bias() {
  std::mt19937 generator(3);
  for (const Case& shape : kCases) {
    auto x = Matrix<T>::random(shape.rows, shape.columns, generator, 1.0, shape.gap);
    auto bias = Matrix<T>::random(1, shape.columns, generator);
    auto dbias = Matrix<float>::random(1, shape.columns, generator);
    const auto before = x;
    const auto dbias_before = dbias;
    bias_backward(x.view(), dbias.vector());
    add_bias(bias.vector(), x.view());
    for (std::int64_t c = 0; c < shape.columns; ++c) {
      double sum = dbias_before.at(0, c);
      for (std::int64_t r = 0; r < shape.rows; ++r) {
        sum += before.at(r, c);
        ASSERT_EQ(x.at(r, c), static_cast<float>(T(static_cast<float>(before.at(r, c) + bias.at(0, c)))));
      }
      expect_close(dbias.at(0, c), sum, 1e-6, static_cast<double>(shape.rows), "dbias", 0, c);
    }
    EXPECT_TRUE(x.gaps_untouched());
  }
}

TEST(Elementwise, AddsABiasAndSumsItsGradient) {
  for_each_target(check_bias<float>);
  for_each_target(check_bias<bf16>);
}

TEST(Elementwise, ThreadsDoNotChangeBits) {
  std::mt19937 generator(4);
  auto dy = Matrix<float>::random(1000, 37, generator);
  Matrix<float> one(1, 37);
  Matrix<float> three(1, 37);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  bias_backward(dy.view(), one.vector());
  omp_set_num_threads(3);
  bias_backward(dy.view(), three.vector());
  omp_set_num_threads(threads);
  EXPECT_TRUE(one.same_bits(three));
}

TEST(Elementwise, WrongShapesAndTypesAreErrors) {
  Matrix<float> a(2, 3);
  Matrix<float> b(3, 2);
  Matrix<std::int32_t> whole(2, 3);
  EXPECT_THROW(add(a.view(), b.view()), Error);
  EXPECT_THROW(convert(a.view(), b.view()), Error);
  EXPECT_THROW(convert(a.view(), whole.view()), Error);
  EXPECT_THROW(add(whole.view(), a.view()), Error);
  EXPECT_THROW(add_bias(a.view().reshape({6}), b.view()), Error);
}

}  // namespace
}  // namespace expedite::kernels
