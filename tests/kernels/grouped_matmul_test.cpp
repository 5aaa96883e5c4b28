#include "expedite/kernels/grouped_matmul.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <random>
#include <vector>

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

TEST(RowGroups, AreAlignedAndLeaveNoRowsToEmptyGroups) {
  const Counts counts{0, 1, 16, 17, 0};
  const RowGroups groups = aligned_groups(counts);
  EXPECT_EQ(groups.counts, counts);
  EXPECT_EQ(groups.offsets, (Counts{0, 0, 16, 32, 64, 64}));
  EXPECT_EQ(groups.groups(), 5);
  EXPECT_EQ(groups.rows(), 64);
  EXPECT_EQ(aligned_groups({}).rows(), 0);
  EXPECT_THROW((void)aligned_groups(Counts{3, -1}), Error);
}

TEST(RowGroups, ZeroPaddingClearsPaddingOnly) {
  const RowGroups groups = aligned_groups(Counts{3, 0, 16, 20});
  Matrix<bf16> x(groups.rows(), 9, 4);
  x.set_all(bf16(2.0F));
  zero_padding(groups, x.view());
  std::vector<bool> token(static_cast<std::size_t>(groups.rows()));
  for (std::int64_t e = 0; e < groups.groups(); ++e) {
    for (std::int64_t i = 0; i < groups.counts[e]; ++i) {
      token[groups.offsets[e] + i] = true;
    }
  }
  for (std::int64_t r = 0; r < groups.rows(); ++r) {
    for (std::int64_t c = 0; c < 9; ++c) {
      EXPECT_EQ(x.at(r, c), token[r] ? 2.0 : 0.0) << r;
    }
  }
  EXPECT_TRUE(x.gaps_untouched());
}

/// The group of each row; padding belongs to its group too.
std::vector<std::int64_t> owners(const RowGroups& groups) {
  std::vector<std::int64_t> owner;
  for (std::int64_t e = 0; e < groups.groups(); ++e) {
    owner.insert(owner.end(), groups.offsets[e + 1] - groups.offsets[e], e);
  }
  return owner;
}

template <typename T, typename D>
void check_rows(const Counts& counts, std::int64_t n, std::int64_t k, std::int64_t gap) {
  std::mt19937 generator(21);
  const RowGroups groups = aligned_groups(counts);
  const auto owner = owners(groups);
  auto x = Matrix<T>::random(groups.rows(), k, generator, 1.0, gap);
  auto dy = Matrix<T>::random(groups.rows(), n, generator, 1.0, gap);
  zero_padding(groups, x.view());
  auto w = Matrix<T>::random(groups.groups() * n, k, generator);
  Matrix<D> y(groups.rows(), n, gap);
  Matrix<D> dx(groups.rows(), k, gap);
  grouped_matmul(groups, x.view(), stack(w, n, k), y.view());
  grouped_matmul_input_grad(groups, dy.view(), stack(w, n, k), dx.view());
  const double tolerance = 2 * rounding<D>() + 2e-6;
  for (std::int64_t r = 0; r < groups.rows(); ++r) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += x.at(r, l) * w.at(owner[r] * n + j, l);
      }
      expect_close(y.at(r, j), sum, tolerance, std::sqrt(static_cast<double>(k)), "y", r, j);
      if (r - groups.offsets[owner[r]] >= groups.counts[owner[r]]) {
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
  const RowGroups groups = aligned_groups(counts);
  auto x = Matrix<T>::random(groups.rows(), k, generator);
  auto dy = Matrix<T>::random(groups.rows(), n, generator);
  zero_padding(groups, dy.view());  // x keeps finite padding
  auto dw = Matrix<float>::random(groups.groups() * n, k, generator);
  auto before = dw;
  grouped_matmul_weight_grad(groups, dy.view(), x.view(), stack(dw, n, k), accumulate);
  for (std::int64_t e = 0; e < groups.groups(); ++e) {
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t l = 0; l < k; ++l) {
        double sum = accumulate ? before.at(e * n + j, l) : 0.0;
        for (std::int64_t r = groups.offsets[e]; r < groups.offsets[e] + groups.counts[e]; ++r) {
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
  const RowGroups groups = aligned_groups(Counts{300, 0, 7, 90});
  auto x = Matrix<bf16>::random(groups.rows(), 72, generator);
  auto w = Matrix<bf16>::random(groups.groups() * 40, 72, generator);
  const int before = omp_get_max_threads();
  std::vector<Matrix<bf16>> y;
  std::vector<Matrix<float>> dw;
  for (const int threads : {1, 2, 5}) {
    omp_set_num_threads(threads);
    y.emplace_back(groups.rows(), 40);
    grouped_matmul(groups, x.view(), stack(w, 40, 72), y.back().view());
    dw.emplace_back(groups.groups() * 40, 72);
    grouped_matmul_weight_grad(groups, y.front().view(), x.view(), stack(dw.back(), 40, 72), false);
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
  grouped_matmul(aligned_groups(Counts{512}), x.view(), stack(w, 64, 96), whole.view());
  for (const std::int64_t rows : {16, 48, 272, 304}) {
    Matrix<bf16> part(rows, 64);
    grouped_matmul(aligned_groups(Counts{rows}), x.view().slice(512 - rows, rows), stack(w, 64, 96),
                   part.view());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < 64; ++c) {
        ASSERT_EQ(part.at(r, c), whole.at(512 - rows + r, c)) << rows << " rows, row " << r;
      }
    }
  }
}

TEST(GroupedMatmul, RefusesWhatDoesNotFit) {
  const RowGroups groups = aligned_groups(Counts{16, 16});
  Matrix<float> x(32, 8);
  Matrix<float> short_x(16, 8);
  Matrix<float> w(2 * 4, 8);
  Matrix<float> three(3 * 4, 8);
  Matrix<float> y(32, 4);
  EXPECT_THROW(grouped_matmul(groups, short_x.view(), stack(w, 4, 8), y.view()), Error);
  EXPECT_THROW(grouped_matmul(groups, x.view(), stack(three, 4, 8), y.view()), Error);
  EXPECT_THROW(grouped_matmul(groups, x.view(), w.view(), y.view()), Error);
  EXPECT_THROW(grouped_matmul_weight_grad(groups, y.view(), short_x.view(), stack(w, 4, 8), false), Error);
  RowGroups torn = groups;
  torn.offsets.pop_back();
  EXPECT_THROW(grouped_matmul(torn, x.view(), stack(w, 4, 8), y.view()), Error);
  torn = groups;
  torn.counts[0] = 17;
  EXPECT_THROW(zero_padding(torn, x.view()), Error);
}

}  // namespace
}  // namespace expedite::kernels
