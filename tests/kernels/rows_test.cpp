#include "expedite/kernels/rows.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <string>

#include "tests/kernels/matrix.h"
#include "tests/kernels/targets.h"

namespace expedite::kernels {
namespace {

template <typename T>
class Rows : public testing::Test {};
using FloatTypes = testing::Types<float, bf16>;
TYPED_TEST_SUITE(Rows, FloatTypes);

struct Case {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t width;  // references to a row of a sum
  std::int64_t gap;
};
const Case kCases[] = {{0, 8, 2, 0},    {1, 1, 1, 0},    {3, 7, 2, 3},  {5, 16, 4, 0}, {33, 67, 8, 5},
                       {70, 129, 3, 1}, {64, 256, 1, 0}, {9, 0, 2, 1},  {8, 40, 0, 2}, {50, 4, 4, 0},
                       {37, 1, 3, 2},   {21, 16, 2, 0},  {90, 11, 5, 0}};

/// Matrices of unequal height, one of them without rows, and references to all their rows.
template <typename T>
class Sources {
 public:
  Sources(const Case& shape, std::mt19937& generator) {
    for (const std::int64_t rows : {shape.rows / 2 + 1, std::int64_t{0}, std::int64_t{1}, shape.rows}) {
      matrices_.push_back(Matrix<T>::random(rows, shape.columns, generator, 1.0, shape.gap));
    }
    for (Matrix<T>& matrix : matrices_) {
      views_.emplace_back(matrix.view());
    }
  }
  Sources(const Sources&) = delete;  // the views are of these matrices
  Sources& operator=(const Sources&) = delete;
  ~Sources() = default;

  [[nodiscard]] std::span<const ConstTensorView> views() const { return views_; }
  [[nodiscard]] double at(RowRef ref, std::int64_t column) const {
    return ref.source < 0 ? 0.0 : matrices_[static_cast<std::size_t>(ref.source)].at(ref.row, column);
  }
  /// One in six names no row.
  [[nodiscard]] std::vector<RowRef> random_refs(std::int64_t count, std::mt19937& generator) const {
    std::vector<RowRef> refs(static_cast<std::size_t>(count));
    for (RowRef& ref : refs) {
      const auto source = static_cast<std::int32_t>(generator() % matrices_.size());
      const std::int64_t rows = matrices_[static_cast<std::size_t>(source)].rows();
      if (rows > 0 && generator() % 6 != 0) {
        ref = {source, static_cast<std::int32_t>(generator() % static_cast<std::uint64_t>(rows))};
      }
    }
    return refs;
  }

 private:
  std::vector<Matrix<T>> matrices_;
  std::vector<ConstTensorView> views_;
};

template <typename T>
void check_gather() {
  std::mt19937 generator(1);
  for (const Case& shape : kCases) {
    const Sources<T> sources(shape, generator);
    const auto refs = sources.random_refs(shape.rows, generator);
    Matrix<T> dst(shape.rows, shape.columns, 2 * shape.gap);
    gather_rows(sources.views(), refs, dst.view());
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        ASSERT_EQ(dst.at(r, c), sources.at(refs[static_cast<std::size_t>(r)], c)) << r << ", " << c;
      }
    }
    EXPECT_TRUE(dst.gaps_untouched());
  }
}

TYPED_TEST(Rows, AreGathered) {
  for_each_target(check_gather<TypeParam>);
}

TEST(RowsOfIntegers, AreGathered) {
  Matrix<std::int32_t> src(2, 3);
  src(1, 0) = -5;
  src(1, 2) = 123456789;
  Matrix<std::int32_t> dst(2, 3);
  const ConstTensorView source = src.view();
  gather_rows({&source, 1}, std::vector<RowRef>{{0, 1}, {}}, dst.view());
  EXPECT_EQ(dst(0, 0), -5);
  EXPECT_EQ(dst(0, 2), 123456789);
  EXPECT_EQ(dst(1, 2), 0);
}

enum class Residual { none, apart, in_place };

template <typename T>
void check_sum(const Case& shape, Residual kind, std::mt19937& generator) {
  const Sources<T> sources(shape, generator);
  const auto refs = sources.random_refs(shape.rows * shape.width, generator);
  auto residual = Matrix<T>::random(shape.rows, shape.columns, generator, 1.0, shape.gap);
  Matrix<T> dst(shape.rows, shape.columns, shape.gap);
  if (kind == Residual::in_place) {
    dst = residual;
  }
  sum_rows(sources.views(), refs,
           kind == Residual::none    ? TensorView()
           : kind == Residual::apart ? residual.view()
                                     : dst.view(),
           dst.view());
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    for (std::int64_t c = 0; c < shape.columns; ++c) {
      double sum = kind == Residual::none ? 0.0 : residual.at(r, c);
      double magnitude = std::abs(sum);
      for (std::int64_t j = 0; j < shape.width; ++j) {
        const double addend = sources.at(refs[static_cast<std::size_t>(r * shape.width + j)], c);
        sum += addend;
        magnitude += std::abs(addend);
      }
      ASSERT_NEAR(dst.at(r, c), sum, rounding<T>() * std::abs(sum) + 1e-6 * magnitude) << r << ", " << c;
    }
  }
  EXPECT_TRUE(dst.gaps_untouched());
}

TYPED_TEST(Rows, AreSummed) {
  for_each_target([] {
    std::mt19937 generator(2);
    for (const Case& shape : kCases) {
      for (const Residual kind : {Residual::none, Residual::apart, Residual::in_place}) {
        check_sum<TypeParam>(shape, kind, generator);
      }
    }
  });
}

// A sum of bf16 rounded after each addition would lose every small addend here.
TEST(RowSums, RoundOnce) {
  for_each_target([] {
    Matrix<bf16> src(2, 21);
    for (std::int64_t c = 0; c < 21; ++c) {
      src(0, c) = bf16(256.0F);
      src(1, c) = bf16(0.5F);
    }
    const ConstTensorView source = src.view();
    Matrix<bf16> dst(1, 21);
    const RowRef small{0, 1};
    sum_rows({&source, 1}, std::vector<RowRef>{{0, 0}, small, small, small, small}, {}, dst.view());
    for (std::int64_t c = 0; c < 21; ++c) {
      EXPECT_EQ(dst.at(0, c), 258.0);
    }
  });
}

// Floating-point addition does not associate: the order shows in the result.
TEST(RowSums, AddInTheOrderOfReferences) {
  for_each_target([] {
    Matrix<float> src(3, 70);
    for (std::int64_t c = 0; c < 70; ++c) {
      src(0, c) = 1e8F;
      src(1, c) = -1e8F;
      src(2, c) = 1.0F;
    }
    const ConstTensorView source = src.view();
    Matrix<float> dst(2, 70);
    sum_rows({&source, 1}, std::vector<RowRef>{{0, 0}, {0, 1}, {0, 2}, {0, 0}, {0, 2}, {0, 1}}, {},
             dst.view());
    for (std::int64_t c = 0; c < 70; ++c) {
      EXPECT_EQ(dst.at(0, c), 1.0);
      EXPECT_EQ(dst.at(1, c), 0.0);
    }
  });
}

TYPED_TEST(Rows, ASumOfOneIsTheRowItself) {
  for_each_target([] {
    std::mt19937 generator(3);
    auto src = Matrix<TypeParam>::random(40, 77, generator);
    src(3, 0) = TypeParam(-0.0F);
    const ConstTensorView source = src.view();
    std::vector<RowRef> refs;
    for (std::int32_t r = 0; r < 40; ++r) {
      refs.insert(refs.end(), {RowRef{}, RowRef{0, r}, RowRef{}});
    }
    Matrix<TypeParam> dst(40, 77);
    sum_rows({&source, 1}, refs, {}, dst.view());
    EXPECT_TRUE(dst.same_bits(src));
  });
}

TYPED_TEST(Rows, ThreadsDoNotChangeBits) {
  std::mt19937 generator(4);
  const Case shape{.rows = 1500, .columns = 45, .width = 4, .gap = 0};
  const Sources<TypeParam> sources(shape, generator);
  const auto refs = sources.random_refs(shape.rows * shape.width, generator);
  const auto few = std::span(refs).first(static_cast<std::size_t>(shape.rows));
  const int threads = omp_get_max_threads();
  std::vector<Matrix<TypeParam>> sums(2, Matrix<TypeParam>(shape.rows, shape.columns));
  std::vector<Matrix<TypeParam>> copies = sums;
  for (const std::size_t i : {0, 1}) {
    omp_set_num_threads(i == 0 ? 1 : 3);
    sum_rows(sources.views(), refs, {}, sums[i].view());
    gather_rows(sources.views(), few, copies[i].view());
  }
  omp_set_num_threads(threads);
  EXPECT_TRUE(sums[0].same_bits(sums[1]));
  EXPECT_TRUE(copies[0].same_bits(copies[1]));
}

template <typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(RowErrors, NameTheWrongReference) {
  Matrix<float> first(3, 4);
  Matrix<float> second(1, 4);
  const std::vector<ConstTensorView> sources{first.view(), second.view()};
  Matrix<float> dst(2, 4);
  const auto gather = [&](RowRef ref) {
    return message_of([&] { gather_rows(sources, std::vector<RowRef>{{0, 2}, ref}, dst.view()); });
  };
  const auto sum = [&](RowRef ref) {
    return message_of([&] { sum_rows(sources, std::vector<RowRef>{{0, 2}, ref}, {}, dst.view()); });
  };
  EXPECT_EQ(gather({1, 0}), "no error");
  EXPECT_EQ(gather({1, 1}), "row reference 1 names row 1 of source 1, which has 1");
  EXPECT_EQ(sum({0, -1}), "row reference 1 names row -1 of source 0, which has 3");
  EXPECT_EQ(sum({2, 0}), "row reference 1 names source 2 of 2");
  EXPECT_EQ(gather({-2, 0}), "row reference 1 names source -2 of 2");
}

TEST(RowErrors, NameWhatDoesNotFit) {
  Matrix<float> src(3, 4);
  Matrix<bf16> other(3, 4);
  Matrix<float> narrow(2, 3);
  Matrix<float> dst(2, 4);
  Matrix<std::int32_t> integers(2, 4);
  const ConstTensorView source = src.view();
  const ConstTensorView integer_source = integers.view();
  const std::vector<ConstTensorView> mixed{src.view(), other.view()};
  const std::vector<RowRef> refs(2);
  EXPECT_EQ(message_of([&] { gather_rows(mixed, refs, dst.view()); }), "a source is bf16, but must be f32");
  EXPECT_EQ(message_of([&] {
              gather_rows({&source, 1}, refs, narrow.view());
            }),
            "rows of 4 columns do not fit rows of 3");
  EXPECT_EQ(message_of([&] {
              gather_rows({&source, 1}, std::vector<RowRef>(3), dst.view());
            }),
            "3 row references do not fill 2 rows");
  EXPECT_EQ(message_of([&] {
              sum_rows({&source, 1}, std::vector<RowRef>(3), {}, dst.view());
            }),
            "3 row references cannot be shared evenly by 2 rows");
  EXPECT_EQ(message_of([&] {
              sum_rows({&source, 1}, refs, {}, dst.view().slice(0, 0));
            }),
            "2 row references cannot be shared evenly by 0 rows");
  EXPECT_EQ(message_of([&] {
              sum_rows({&source, 1}, refs, src.view(), dst.view());
            }),
            "residual has shape [3, 4], but must have [2, 4]");
  EXPECT_EQ(message_of([&] {
              sum_rows({&integer_source, 1}, refs, {}, integers.view());
            }),
            "dst is i32, but must be f32 or bf16");
}

}  // namespace
}  // namespace expedite::kernels
