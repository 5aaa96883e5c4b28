#include "expedite/tensor/view.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace expedite {
namespace {

std::vector<float> counting(std::size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

TEST(TensorView, SlicesRowsAndColumns) {
  std::vector<float> values = counting(24);
  const TensorView matrix(values.data(), DType::f32, {4, 6});
  EXPECT_EQ(matrix.slice(1, 2).row<float>(1)[0], 12.0F);
  const TensorView columns = matrix.columns_slice(2, 3);
  EXPECT_EQ(columns.shape(), (Shape{4, 3}));
  EXPECT_FALSE(columns.contiguous());
  EXPECT_EQ(columns.row<float>(3)[2], 22.0F);
  EXPECT_THROW(static_cast<void>(columns.span<float>()), Error);
}

TEST(TensorView, IndexesAndReshapes) {
  std::vector<float> values = counting(24);
  const TensorView tensor(values.data(), DType::f32, {2, 3, 4});
  EXPECT_EQ(tensor[1].shape(), (Shape{3, 4}));
  EXPECT_EQ(tensor[1][2].as<float>()[3], 23.0F);
  EXPECT_EQ(tensor.reshape({6, 4}).row<float>(5)[0], 20.0F);
  EXPECT_THROW(static_cast<void>(tensor.reshape({5, 5})), Error);
  EXPECT_THROW(static_cast<void>(tensor[0][0][0]), Error);
  const TensorView strided = TensorView(values.data(), DType::f32, {4, 6}).columns_slice(0, 4);
  EXPECT_EQ(strided.reshape({4, 2, 2}).row<float>(2)[3], 15.0F);
  EXPECT_THROW(static_cast<void>(strided.reshape({8, 2})), Error);
}

TEST(TensorView, ChecksTypes) {
  std::vector<float> values = counting(4);
  const TensorView view{std::span(values)};
  EXPECT_EQ(view.dtype(), DType::f32);
  EXPECT_EQ(view.bytes(), 16);
  EXPECT_THROW(static_cast<void>(view.as<bf16>()), Error);
  const ConstTensorView read_only = view;
  EXPECT_EQ(read_only.as<float>()[2], 2.0F);
}

TEST(TensorView, EmptyTensorsAreLegal) {
  const TensorView empty(nullptr, DType::bf16, {0, 8});
  EXPECT_TRUE(empty.empty());
  EXPECT_TRUE(empty.contiguous());
  EXPECT_TRUE(empty.slice(0, 0).empty());
  EXPECT_EQ(to_string(empty.shape()), "[0, 8]");
}

TEST(Shape, HasAtMostFourDimensions) {
  EXPECT_THROW((Shape{1, 2, 3, 4, 5}), Error);
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(bf16(1.0F).bits, 0x3F80);
  EXPECT_EQ(bf16(std::bit_cast<float>(0x3F808000U)).bits, 0x3F80) << "a tie goes to the even one";
  EXPECT_EQ(bf16(std::bit_cast<float>(0x3F818000U)).bits, 0x3F82);
  EXPECT_EQ(bf16(std::bit_cast<float>(0x3F808001U)).bits, 0x3F81);
  EXPECT_EQ(static_cast<float>(bf16(-2.5F)), -2.5F);
}

TEST(Bf16, KeepsSpecialValues) {
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::bit_cast<float>(0x7F800001U)))))
      << "a NaN whose upper half looks like infinity";
  EXPECT_TRUE(std::isinf(static_cast<float>(bf16(std::numeric_limits<float>::infinity()))));
  EXPECT_TRUE(std::isinf(static_cast<float>(bf16(std::numeric_limits<float>::max()))));
}

}  // namespace
}  // namespace expedite
