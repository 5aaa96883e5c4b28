#include "expedite/kernels/grouped_matmul.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "expedite/kernels/elementwise.h"
#include "tests/kernels/matrix.h"

namespace expedite::kernels {
namespace {

using Counts = std::vector<std::int64_t>;

/// Even, uneven, with empty groups at every place, all on one expert, nothing at all, one expert.
std::vector<Counts> all_counts() {
  return {{16, 16, 16}, {5, 31, 17, 40}, {0, 3, 0, 0, 20, 0},     {0, 0, 333, 0},
          {0, 0},       {700},           {1, 1, 1, 1, 1, 1, 1, 1}};
}

/// [groups, n, k] in the rows of one matrix.
template <typename T>
TensorView stack(Matrix<T>& w, std::int64_t n, std::int64_t k) {
  return TensorView(w.view().data(), dtype_of<T>(), {n == 0 ? 0 : w.rows() / n, n, k});
}

TEST(RowBlocks, ArePaddedAndLeaveNoRowsToEmptyOnes) {
  const RowBlocks blocks = row_blocks(Counts{0, 1, 16, 17, 0});
  EXPECT_EQ(blocks.begin, (Counts{0, 0, 16, 32, 64}));
  EXPECT_EQ(blocks.rows, (Counts{0, 16, 16, 32, 0}));
  EXPECT_EQ(blocks.total, 64);
  EXPECT_EQ(row_blocks({}).total, 0);
  EXPECT_THROW((void)row_blocks(Counts{3, -1}), Error);
}

/// Rows of several experts in one matrix, `counts` of each; the rest is padding.
struct Groups {
  explicit Groups(const Counts& tokens) : counts(tokens), blocks(row_blocks(tokens)) {}

  [[nodiscard]] std::int64_t groups() const { return std::ssize(counts); }
  [[nodiscard]] std::int64_t rows() const { return blocks.total; }
  [[nodiscard]] std::vector<ConstTensorView> of(ConstTensorView x) const { return blocks_of(x, blocks); }
  [[nodiscard]] std::vector<TensorView> into(TensorView x) const { return blocks_of(x, blocks); }
  void zero_padding(TensorView x) const {
    for (std::size_t e = 0; e < counts.size(); ++e) {
      fill_zero(x.slice(blocks.begin[e] + counts[e], blocks.rows[e] - counts[e]));
    }
  }

  Counts counts;
  RowBlocks blocks;
};

/// The group of each row; padding belongs to its group too.
std::vector<std::int64_t> owners(const Groups& groups) {
  std::vector<std::int64_t> owner;
  for (std::int64_t e = 0; e < groups.groups(); ++e) {
    owner.insert(owner.end(), groups.blocks.rows[e], e);
  }
  return owner;
}

template <typename T, typename D>
void check_rows(const Counts& counts, std::int64_t n, std::int64_t k, std::int64_t gap) {
  std::mt19937 generator(21);
  const Groups groups(counts);
  const auto owner = owners(groups);
  auto x = Matrix<T>::random(groups.rows(), k, generator, 1.0, gap);
  auto dy = Matrix<T>::random(groups.rows(), n, generator, 1.0, gap);
  groups.zero_padding(x.view());
  auto w = Matrix<T>::random(groups.groups() * n, k, generator);
  Matrix<D> y(groups.rows(), n, gap);
  Matrix<D> dx(groups.rows(), k, gap);
  grouped_matmul(groups.of(x.view()), stack(w, n, k), groups.into(y.view()));
  grouped_matmul_input_grad(groups.of(dy.view()), stack(w, n, k), groups.into(dx.view()));
  const double tolerance = 2 * rounding<D>() + 2e-6;
  for (std::int64_t r = 0; r < groups.rows(); ++r) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += x.at(r, l) * w.at(owner[r] * n + j, l);
      }
      expect_close(y.at(r, j), sum, tolerance, std::sqrt(static_cast<double>(k)), "y", r, j);
      if (r - groups.blocks.begin[owner[r]] >= groups.counts[owner[r]]) {
        EXPECT_EQ(y.at(r, j), 0.0) << "padding row " << r;
      }
    }
    for (std::int64_t l = 0; l < k; ++l) {
      double sum = 0;
      for (std::int64_t j = 0; j < n; ++j) {
        sum += dy.at(r, j) * w.at(owner[r] * n + j, l);
      }
      expect_close(dx.at(r, l), sum, tolerance, std::sqrt(static_cast<double>(n)), "dx", r, l);
    }
  }
  EXPECT_TRUE(y.gaps_untouched() && dx.gaps_untouched());
}

TEST(GroupedMatmul, ForwardAndInputGradientAgreeWithDouble) {
  for (const Counts& counts : all_counts()) {
    for (const std::int64_t gap : {0, 3}) {
      check_rows<float, float>(counts, 24, 40, gap);
      check_rows<bf16, bf16>(counts, 40, 24, gap);
      check_rows<bf16, float>(counts, 33, 17, gap);
    }
  }
}

template <typename T>
void check_weight_gradient(const Counts& counts, std::int64_t n, std::int64_t k, bool accumulate) {
  std::mt19937 generator(22);
  const Groups groups(counts);
  auto x = Matrix<T>::random(groups.rows(), k, generator);
  auto dy = Matrix<T>::random(groups.rows(), n, generator);
  groups.zero_padding(dy.view());  // x keeps finite padding
  auto dw = Matrix<float>::random(groups.groups() * n, k, generator);
  auto before = dw;
  grouped_matmul_weight_grad(groups.of(dy.view()), groups.of(x.view()), stack(dw, n, k), accumulate);
  for (std::int64_t e = 0; e < groups.groups(); ++e) {
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t l = 0; l < k; ++l) {
        double sum = accumulate ? before.at(e * n + j, l) : 0.0;
        for (std::int64_t r = groups.blocks.begin[e]; r < groups.blocks.begin[e] + groups.counts[e]; ++r) {
          sum += dy.at(r, j) * x.at(r, l);
        }
        const double scale = std::sqrt(static_cast<double>(counts[e]) + 1);
        expect_close(dw.at(e * n + j, l), sum, 4e-6, scale, "dw", e * n + j, l);
      }
    }
  }
}

TEST(GroupedMatmul, WeightGradientAgreesWithDouble) {
  for (const Counts& counts : all_counts()) {
    for (const bool accumulate : {false, true}) {
      check_weight_gradient<float>(counts, 24, 40, accumulate);
      check_weight_gradient<bf16>(counts, 40, 25, accumulate);
    }
  }
  check_weight_gradient<bf16>({1500, 3}, 16, 8, true);  // more rows than are summed at once
}

TEST(GroupedMatmul, ThreadsDoNotChangeBits) {
  std::mt19937 generator(23);
  const Groups groups(Counts{300, 0, 7, 90});
  auto x = Matrix<bf16>::random(groups.rows(), 72, generator);
  auto w = Matrix<bf16>::random(groups.groups() * 40, 72, generator);
  const int before = omp_get_max_threads();
  std::vector<Matrix<bf16>> y;
  std::vector<Matrix<float>> dw;
  for (const int threads : {1, 2, 5}) {
    omp_set_num_threads(threads);
    y.emplace_back(groups.rows(), 40);
    grouped_matmul(groups.of(x.view()), stack(w, 40, 72), groups.into(y.back().view()));
    dw.emplace_back(groups.groups() * 40, 72);
    grouped_matmul_weight_grad(groups.of(y.front().view()), groups.of(x.view()), stack(dw.back(), 40, 72),
                               false);
  }
  omp_set_num_threads(before);
  for (std::size_t i = 1; i < y.size(); ++i) {
    EXPECT_TRUE(y[i].same_bits(y[0]));
    EXPECT_TRUE(dw[i].same_bits(dw[0]));
  }
}

TEST(GroupedMatmul, ARowDoesNotDependOnItsGroupsSize) {
  std::mt19937 generator(24);
  auto x = Matrix<bf16>::random(512, 96, generator);
  auto w = Matrix<bf16>::random(64, 96, generator);
  Matrix<bf16> whole(512, 64);
  const auto multiply = [&](ConstTensorView rows, TensorView y) {
    grouped_matmul({&rows, 1}, stack(w, 64, 96), {&y, 1});
  };
  multiply(x.view(), whole.view());
  for (const std::int64_t rows : {16, 48, 272, 304}) {
    Matrix<bf16> part(rows, 64);
    multiply(x.view().slice(512 - rows, rows), part.view());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < 64; ++c) {
        ASSERT_EQ(part.at(r, c), whole.at(512 - rows + r, c)) << rows << " rows, row " << r;
      }
    }
  }
}

/// Blocks of rows, each a matrix of its own.
template <typename T>
struct Blocks {
  Blocks(const Counts& counts, std::int64_t columns, std::int64_t gap) {
    for (const std::int64_t rows : counts) {
      matrices.emplace_back(rows, columns, gap);
    }
  }
  Blocks(const Counts& counts, std::int64_t columns, std::int64_t gap, std::mt19937& generator) {
    for (const std::int64_t rows : counts) {
      matrices.push_back(Matrix<T>::random(rows, columns, generator, 1.0, gap));
    }
  }

  template <typename View>
  [[nodiscard]] std::vector<View> views() {
    std::vector<View> result;
    for (Matrix<T>& matrix : matrices) {
      result.emplace_back(matrix.view());
    }
    return result;
  }
  [[nodiscard]] std::vector<ConstTensorView> inputs() { return views<ConstTensorView>(); }
  [[nodiscard]] std::vector<TensorView> outputs() { return views<TensorView>(); }

  std::vector<Matrix<T>> matrices;
};

/// Even, uneven, with empty blocks at every place, all rows in one, none at all, no block.
std::vector<Counts> all_block_counts() {
  return {{16, 16, 16}, {5, 31, 17, 40}, {0, 3, 0, 0, 20, 0}, {0, 0, 333, 0}, {0, 0}, {}, {1, 1, 1, 1}};
}

template <typename T, typename D>
void check_blocks(const Counts& counts, std::int64_t n, std::int64_t k, std::int64_t gap) {
  std::mt19937 generator(25);
  const auto experts = static_cast<std::int64_t>(counts.size());
  Blocks<T> x(counts, k, gap, generator);
  Blocks<T> dy(counts, n, gap, generator);
  Blocks<D> y(counts, n, gap);
  Blocks<D> dx(counts, k, gap);
  auto w = Matrix<T>::random(experts * n, k, generator);
  grouped_matmul(x.inputs(), stack(w, n, k), y.outputs());
  grouped_matmul_input_grad(dy.inputs(), stack(w, n, k), dx.outputs());
  const double tolerance = 2 * rounding<D>() + 2e-6;
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto place = static_cast<std::size_t>(e);
    for (std::int64_t r = 0; r < counts[place]; ++r) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          sum += x.matrices[place].at(r, l) * w.at(e * n + j, l);
        }
        expect_close(y.matrices[place].at(r, j), sum, tolerance, std::sqrt(static_cast<double>(k)), "y", r,
                     j);
      }
      for (std::int64_t l = 0; l < k; ++l) {
        double sum = 0;
        for (std::int64_t j = 0; j < n; ++j) {
          sum += dy.matrices[place].at(r, j) * w.at(e * n + j, l);
        }
        expect_close(dx.matrices[place].at(r, l), sum, tolerance, std::sqrt(static_cast<double>(n)), "dx", r,
                     l);
      }
    }
    EXPECT_TRUE(y.matrices[place].gaps_untouched() && dx.matrices[place].gaps_untouched());
  }
}

TEST(GroupedBlocks, ForwardAndInputGradientAgreeWithDouble) {
  for (const Counts& counts : all_block_counts()) {
    for (const std::int64_t gap : {0, 3}) {
      check_blocks<float, float>(counts, 24, 40, gap);
      check_blocks<bf16, bf16>(counts, 40, 24, gap);
      check_blocks<bf16, float>(counts, 33, 17, gap);
    }
  }
}

template <typename T>
void check_block_weight_gradient(const Counts& counts, std::int64_t n, std::int64_t k, bool accumulate) {
  std::mt19937 generator(26);
  const auto experts = static_cast<std::int64_t>(counts.size());
  Blocks<T> x(counts, k, 2, generator);
  Blocks<T> dy(counts, n, 0, generator);
  auto dw = Matrix<float>::random(experts * n, k, generator);
  const auto before = dw;
  grouped_matmul_weight_grad(dy.inputs(), x.inputs(), stack(dw, n, k), accumulate);
  for (std::int64_t row = 0; row < experts * n; ++row) {
    const auto place = static_cast<std::size_t>(row / n);
    for (std::int64_t l = 0; l < k; ++l) {
      double sum = accumulate ? before.at(row, l) : 0.0;
      for (std::int64_t r = 0; r < counts[place]; ++r) {
        sum += dy.matrices[place].at(r, row % n) * x.matrices[place].at(r, l);
      }
      const double scale = std::sqrt(static_cast<double>(counts[place]) + 1);
      expect_close(dw.at(row, l), sum, 4e-6, scale, "dw", row, l);
    }
  }
}

TEST(GroupedBlocks, WeightGradientAgreesWithDouble) {
  for (const Counts& counts : all_block_counts()) {
    for (const bool accumulate : {false, true}) {
      check_block_weight_gradient<float>(counts, 24, 40, accumulate);
      check_block_weight_gradient<bf16>(counts, 40, 25, accumulate);
    }
  }
}

/// [0, rows) cut at random into blocks, some of them empty, most of them not aligned.
Counts random_split(std::int64_t rows, std::mt19937& generator) {
  Counts counts;
  for (std::int64_t left = rows; left > 0;) {
    const auto most =
        static_cast<std::uint32_t>(generator() % 4 == 0 ? left : std::min<std::int64_t>(left, 40));
    const std::int64_t count = generator() % (most + 1);
    counts.push_back(count);
    left -= count;
  }
  return counts;
}

template <typename View>
std::vector<View> cut(View rows, const Counts& counts) {
  std::vector<View> blocks;
  std::int64_t begin = 0;
  for (const std::int64_t count : counts) {
    blocks.push_back(rows.slice(begin, count));
    begin += count;
  }
  return blocks;
}

/// The same rows and the same weights for every block, in random splits.
template <typename T, typename D>
void check_splits(std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kRows = 400;
  constexpr std::int64_t kMostBlocks = 128;
  std::mt19937 generator(27);
  auto x = Matrix<T>::random(kRows, k, generator);
  auto dy = Matrix<T>::random(kRows, n, generator);
  auto w = Matrix<T>::random(n, k, generator);
  Matrix<T> copies(kMostBlocks * n, k);
  for (std::int64_t row = 0; row < kMostBlocks * n; ++row) {
    for (std::int64_t l = 0; l < k; ++l) {
      copies(row, l) = w(row % n, l);
    }
  }
  Matrix<D> whole_y(kRows, n);
  Matrix<D> whole_dx(kRows, k);
  const auto multiply = [&](const Counts& counts, Matrix<D>& y, Matrix<D>& dx) {
    const TensorView weights = stack(copies, n, k).slice(0, static_cast<std::int64_t>(counts.size()));
    grouped_matmul(cut<ConstTensorView>(x.view(), counts), weights, cut(y.view(), counts));
    grouped_matmul_input_grad(cut<ConstTensorView>(dy.view(), counts), weights, cut(dx.view(), counts));
  };
  multiply({kRows}, whole_y, whole_dx);
  for (int split = 0; split < 8; ++split) {
    const Counts counts = random_split(kRows, generator);
    ASSERT_LE(std::ssize(counts), kMostBlocks);
    Matrix<D> y(kRows, n);
    Matrix<D> dx(kRows, k);
    multiply(counts, y, dx);
    EXPECT_TRUE(y.same_bits(whole_y)) << "split " << split;
    EXPECT_TRUE(dx.same_bits(whole_dx)) << "split " << split;
  }
}

TEST(GroupedBlocks, SplitsDoNotChangeBits) {
  for (const std::int64_t n : {64, 33}) {
    for (const std::int64_t k : {128, 50}) {
      check_splits<float, float>(n, k);
      check_splits<bf16, bf16>(n, k);
      check_splits<bf16, float>(n, k);
    }
  }
}

TEST(GroupedBlocks, RefuseWhatDoesNotFit) {
  Blocks<float> x(Counts{16, 3}, 8, 0);
  Blocks<float> y(Counts{16, 3}, 4, 0);
  Blocks<float> other(Counts{16, 4}, 4, 0);
  Blocks<float> one(Counts{16}, 4, 0);
  Matrix<float> w(2 * 4, 8);
  Matrix<float> three(3 * 4, 8);
  EXPECT_THROW(grouped_matmul(x.inputs(), stack(w, 4, 8), other.outputs()), Error);
  EXPECT_THROW(grouped_matmul(x.inputs(), stack(w, 4, 8), one.outputs()), Error);
  EXPECT_THROW(grouped_matmul(x.inputs(), stack(three, 4, 8), y.outputs()), Error);
  EXPECT_THROW(grouped_matmul_input_grad(x.inputs(), stack(w, 4, 8), x.outputs()), Error);
  EXPECT_THROW(grouped_matmul_weight_grad(one.inputs(), x.inputs(), stack(w, 4, 8), false), Error);
  EXPECT_THROW(grouped_matmul_weight_grad(other.inputs(), x.inputs(), stack(w, 4, 8), false), Error);
}

TEST(PaddedRows, AreTheNextMultiple) {
  EXPECT_EQ(padded_rows(0), 0);
  EXPECT_EQ(padded_rows(1), kRowAlignment);
  EXPECT_EQ(padded_rows(kRowAlignment), kRowAlignment);
  EXPECT_EQ(padded_rows(kRowAlignment + 1), 2 * kRowAlignment);
  EXPECT_THROW((void)padded_rows(-1), Error);
}

TEST(GroupedMatmul, RefusesWhatDoesNotFit) {
  const Groups groups(Counts{16, 16});
  Matrix<float> x(32, 8);
  Matrix<float> short_x(16, 8);
  Matrix<float> w(2 * 4, 8);
  Matrix<float> three(3 * 4, 8);
  Matrix<float> y(32, 4);
  const auto multiply = [&](ConstTensorView rows, ConstTensorView weights) {
    grouped_matmul(groups.of(rows), weights, groups.into(y.view()));
  };
  EXPECT_THROW(multiply(short_x.view(), stack(w, 4, 8)), Error);
  EXPECT_THROW(multiply(x.view(), stack(three, 4, 8)), Error);
  EXPECT_THROW(multiply(x.view(), w.view()), Error);
  const Groups one(Counts{16});
  EXPECT_THROW(grouped_matmul(one.of(x.view()), stack(w, 4, 8), groups.into(y.view())), Error);
  EXPECT_THROW(grouped_matmul_weight_grad(groups.of(y.view()), one.of(short_x.view()), stack(w, 4, 8), false),
               Error);
}

}  // namespace
}  // namespace expedite::kernels
