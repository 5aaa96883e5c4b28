#include "expedite/kernels/streaming.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "expedite/kernels/rms_norm.h"
#include "expedite/kernels/rows.h"
#include "expedite/kernels/swiglu.h"
#include "expedite/tensor/memory_pool.h"
#include "tests/kernels/matrix.h"
#include "tests/kernels/targets.h"

// Results large enough to be written past the caches must be those of the small ones that they are made of.
namespace expedite::kernels {
namespace {

constexpr std::int64_t kColumns = 1024;
constexpr std::int64_t kSlice = 512;  // rows that stay below the bound

template <typename T>
constexpr std::int64_t kRows = kStreamedBytes / (kColumns * static_cast<std::int64_t>(sizeof(T)));

// Aligned memory of one tensor, filled with a pattern that no row or column repeats soon.
template <typename T>
class Block {
 public:
  Block(MemoryPool& pool, std::int64_t rows, std::int64_t columns)
      : buffer_(
            pool.allocate(rows * columns * static_cast<std::int64_t>(sizeof(T)), MemoryCategory::workspace)),
        view_(buffer_.view(dtype_of<T>(), {rows, columns})) {
    const std::span<T> values = view_.template span<T>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = T(static_cast<float>(i * 7919 % 8191) / 4096.0F - 1.0F);
    }
  }
  [[nodiscard]] const TensorView& view() const { return view_; }
  [[nodiscard]] bool same_bits(const Block& other) const {
    return std::memcmp(view_.data(), other.view_.data(), static_cast<std::size_t>(view_.bytes())) == 0;
  }

 private:
  Buffer buffer_;
  TensorView view_;
};

template <typename T>
class Streaming : public testing::Test {
 protected:
  MemoryPool pool;
};
using FloatTypes = testing::Types<float, bf16>;
TYPED_TEST_SUITE(Streaming, FloatTypes);

// Runs `kernel(begin, count, dst)` once over all rows and once slice by slice, and compares the results.
template <typename T, typename Kernel>
void expect_slices_agree(MemoryPool& pool, std::int64_t columns, const Kernel& kernel) {
  for_each_target([&] {
    Block<T> whole(pool, kRows<T>, columns);
    Block<T> sliced(pool, kRows<T>, columns);
    ASSERT_TRUE(worth_streaming(whole.view(), kColumns));
    kernel(std::int64_t{0}, kRows<T>, whole.view());
    for (std::int64_t begin = 0; begin < kRows<T>; begin += kSlice) {
      const TensorView part = sliced.view().slice(begin, kSlice);
      ASSERT_FALSE(worth_streaming(part, kColumns));
      kernel(begin, kSlice, part);
    }
    EXPECT_TRUE(whole.same_bits(sliced));
  });
}

TYPED_TEST(Streaming, RowsGatheredAndSummed) {
  Block<TypeParam> src(this->pool, 300, kColumns);
  Block<TypeParam> residual(this->pool, kRows<TypeParam>, kColumns);
  const ConstTensorView source = src.view();
  std::vector<RowRef> refs(static_cast<std::size_t>(2 * kRows<TypeParam>));
  for (std::size_t i = 0; i < refs.size(); ++i) {
    if (i % 7 != 3) {
      refs[i] = {0, static_cast<std::int32_t>(i * 37 % 300)};
    }
  }
  const auto refs_of = [&](std::int64_t begin, std::int64_t count, std::size_t width) {
    return std::span<const RowRef>(refs).subspan(static_cast<std::size_t>(begin) * width,
                                                 static_cast<std::size_t>(count) * width);
  };
  expect_slices_agree<TypeParam>(this->pool, kColumns,
                                 [&](std::int64_t begin, std::int64_t count, const TensorView& dst) {
                                   gather_rows({&source, 1}, refs_of(begin, count, 1), dst);
                                 });
  expect_slices_agree<TypeParam>(
      this->pool, kColumns, [&](std::int64_t begin, std::int64_t count, const TensorView& dst) {
        sum_rows({&source, 1}, refs_of(begin, count, 2), residual.view().slice(begin, count), dst);
      });
}

TYPED_TEST(Streaming, SwigluBothWays) {
  Block<TypeParam> gate_up(this->pool, kRows<TypeParam>, 2 * kColumns);
  Block<TypeParam> dy(this->pool, kRows<TypeParam>, kColumns);
  expect_slices_agree<TypeParam>(this->pool, kColumns,
                                 [&](std::int64_t begin, std::int64_t count, const TensorView& y) {
                                   swiglu(gate_up.view().slice(begin, count), y);
                                 });
  expect_slices_agree<TypeParam>(
      this->pool, 2 * kColumns, [&](std::int64_t begin, std::int64_t count, const TensorView& dgate_up) {
        swiglu_backward(dy.view().slice(begin, count), gate_up.view().slice(begin, count), dgate_up);
      });
}

TYPED_TEST(Streaming, ClampedSwigluBothWays) {
  const GluOptions options = {.alpha = 1.702F, .limit = 0.5F, .up_offset = 1.0F};
  Block<TypeParam> gate_up(this->pool, kRows<TypeParam>, 2 * kColumns);
  Block<TypeParam> dy(this->pool, kRows<TypeParam>, kColumns);
  expect_slices_agree<TypeParam>(this->pool, kColumns,
                                 [&](std::int64_t begin, std::int64_t count, const TensorView& y) {
                                   swiglu(gate_up.view().slice(begin, count), {}, y, options);
                                 });
  expect_slices_agree<TypeParam>(
      this->pool, 2 * kColumns, [&](std::int64_t begin, std::int64_t count, const TensorView& dgate_up) {
        swiglu_backward(dy.view().slice(begin, count), gate_up.view().slice(begin, count), {}, dgate_up, {},
                        options);
      });
}

TYPED_TEST(Streaming, RmsNorm) {
  Block<TypeParam> x(this->pool, kRows<TypeParam>, kColumns);
  Block<TypeParam> weight(this->pool, 1, kColumns);
  std::vector<float> inverse(static_cast<std::size_t>(kRows<TypeParam>));
  expect_slices_agree<TypeParam>(
      this->pool, kColumns, [&](std::int64_t begin, std::int64_t count, const TensorView& y) {
        rms_norm(x.view().slice(begin, count), weight.view().reshape({kColumns}), 1e-5F, y,
                 TensorView(std::span<float>(inverse)).slice(begin, count));
      });
}

}  // namespace
}  // namespace expedite::kernels
