#include "expedite/kernels/matmul.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/kernels/bf16_ways.h"
#include "tests/kernels/matrix.h"
#include "tests/kernels/targets.h"

namespace expedite::kernels {
namespace {

struct Size {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

template <typename T>
double element(const Matrix<T>& x, bool transposed, std::int64_t row, std::int64_t column) {
  return transposed ? x.at(column, row) : x.at(row, column);
}

/// dst against sums in double.
template <typename T, typename D>
void check_product(Size size, MatmulOptions options, std::int64_t gap, std::mt19937& generator) {
  const auto [m, n, k] = size;
  auto a = options.transpose_a ? Matrix<T>::random(k, m, generator, 1.0, gap)
                               : Matrix<T>::random(m, k, generator, 1.0, gap);
  auto b = options.transpose_b ? Matrix<T>::random(n, k, generator, 1.0, 2 * gap)
                               : Matrix<T>::random(k, n, generator, 1.0, 2 * gap);
  auto dst = Matrix<D>::random(m, n, generator, 1.0, 3 * gap);
  auto before = dst;
  matmul(a.view(), b.view(), dst.view(), options);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = options.accumulate ? before.at(i, j) : 0.0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += element(a, options.transpose_a, i, l) * element(b, options.transpose_b, l, j);
      }
      // Sums of k products round k times; their errors mostly cancel.
      const double tolerance = 2 * rounding<D>() + 3e-7 * std::sqrt(static_cast<double>(k));
      expect_close(dst.at(i, j), sum, tolerance, std::sqrt(static_cast<double>(k + 1)), "dst", i, j);
    }
  }
  EXPECT_TRUE(a.gaps_untouched() && b.gaps_untouched() && dst.gaps_untouched());
}

std::vector<MatmulOptions> all_transposes() {
  return {{}, {.transpose_b = true}, {.transpose_a = true}, {.transpose_a = true, .transpose_b = true}};
}

template <typename T, typename D>
void check_products() {
  std::mt19937 generator(11);
  const std::vector<Size> sizes = {{1, 1, 1},     {1, 40, 64},  {2, 7, 33},    {17, 16, 5},
                                   {16, 64, 128}, {3, 600, 31}, {300, 30, 4},  {50, 48, 48},
                                   {20, 1100, 9}, {530, 9, 17}, {9, 33, 1100}, {61, 29, 70}};
  for (MatmulOptions options : all_transposes()) {
    for (const Size size : sizes) {
      for (const std::int64_t gap : {0, 5}) {
        SCOPED_TRACE(fmt::format("{} x {} x {}, transposed {} {}, gap {}", size.m, size.n, size.k,
                                 options.transpose_a, options.transpose_b, gap));
        check_product<T, D>(size, options, gap, generator);
        if constexpr (std::is_same_v<D, float>) {
          MatmulOptions adding = options;
          adding.accumulate = true;
          check_product<T, D>(size, adding, gap, generator);
        }
      }
    }
  }
}

TEST(Matmul, F32AgreesWithDouble) {
  check_products<float, float>();
}
TEST(Matmul, Bf16IntoF32AgreesWithDouble) {
  for_each_bf16_way([] { check_products<bf16, float>(); });
}
TEST(Matmul, Bf16AgreesWithDouble) {
  for_each_bf16_way([] { check_products<bf16, bf16>(); });
}
TEST(Matmul, WidenedAgreesWithDoubleOnEveryTarget) {
  const Bf16Choice choice(Bf16Products::widened);
  for_each_target([] {
    check_products<bf16, float>();
    check_products<bf16, bf16>();
  });
}

TEST(Matmul, SumsOverNothingAreZero) {
  for (const MatmulOptions options : all_transposes()) {
    std::mt19937 generator(1);
    auto empty_a = options.transpose_a ? Matrix<float>(0, 5) : Matrix<float>(5, 0);
    auto empty_b = options.transpose_b ? Matrix<float>(7, 0) : Matrix<float>(0, 7);
    auto dst = Matrix<float>::random(5, 7, generator, 1.0, 2);
    auto kept = dst;
    matmul(empty_a.view(), empty_b.view(), dst.view(),
           {.transpose_a = options.transpose_a, .transpose_b = options.transpose_b, .accumulate = true});
    EXPECT_TRUE(dst.same_bits(kept));
    matmul(empty_a.view(), empty_b.view(), dst.view(), options);
    for (std::int64_t i = 0; i < 35; ++i) {
      EXPECT_EQ(dst.at(i / 7, i % 7), 0.0);
    }
    EXPECT_TRUE(dst.gaps_untouched());
  }
}

TEST(Matmul, NoRowsAndNoColumnsAreLegal) {
  Matrix<bf16> no_rows(0, 4);
  Matrix<bf16> b(6, 4);
  Matrix<bf16> no_rows_out(0, 6);
  matmul(no_rows.view(), b.view(), no_rows_out.view(), {.transpose_b = true});
  Matrix<bf16> a(3, 4);
  Matrix<bf16> no_columns_out(3, 0);
  matmul(a.view(), no_rows.view(), no_columns_out.view(), {.transpose_b = true});
}

TEST(Matmul, NanReachesItsRowOnly) {
  std::mt19937 generator(5);
  auto a = Matrix<bf16>::random(40, 64, generator);
  auto b = Matrix<bf16>::random(32, 64, generator);
  a(7, 3) = bf16(std::numeric_limits<float>::quiet_NaN());
  Matrix<float> dst(40, 32);
  matmul(a.view(), b.view(), dst.view(), {.transpose_b = true});
  for (std::int64_t i = 0; i < 40; ++i) {
    for (std::int64_t j = 0; j < 32; ++j) {
      EXPECT_EQ(std::isnan(dst.at(i, j)), i == 7);
    }
  }
}

/// Rows [begin, begin + count) of a product alone have the bits that they have among all rows.
template <typename T, typename D>
void check_row_independence(std::int64_t n, std::int64_t k, bool transpose_b, std::int64_t gap) {
  constexpr std::int64_t kRows = 560;
  std::mt19937 generator(3);
  auto a = Matrix<T>::random(kRows, k, generator, 1.0, gap);
  auto b = transpose_b ? Matrix<T>::random(n, k, generator) : Matrix<T>::random(k, n, generator);
  Matrix<D> whole(kRows, n, gap);
  const MatmulOptions options{.transpose_b = transpose_b};
  matmul(a.view(), b.view(), whole.view(), options);
  for (const std::int64_t count : {1, 2, 17, 48, 100, 257, 512}) {
    for (const std::int64_t begin : {0, 13}) {
      Matrix<D> part(kRows, n, gap);
      matmul(a.view().slice(begin, count), b.view(), part.view().slice(begin, count), options);
      std::int64_t different = 0;
      for (std::int64_t i = begin; i < begin + count; ++i) {
        different +=
            std::memcmp(&part(i, 0), &whole(i, 0), static_cast<std::size_t>(n) * sizeof(D)) == 0 ? 0 : 1;
      }
      EXPECT_EQ(different, 0) << "rows " << begin << " + " << count << ", N " << n << ", K " << k
                              << ", transposed " << transpose_b << ", gap " << gap;
    }
  }
}

template <typename T, typename D>
void check_row_independence() {
  for (const auto& [n, k] : std::vector<std::pair<std::int64_t, std::int64_t>>{{130, 100}, {520, 65}}) {
    for (const bool transpose_b : {false, true}) {
      for (const std::int64_t gap : {0, 8}) {
        check_row_independence<T, D>(n, k, transpose_b, gap);
      }
    }
  }
}

TEST(Matmul, F32RowsDoNotDependOnTheirNumber) {
  check_row_independence<float, float>();
}
TEST(Matmul, Bf16RowsDoNotDependOnTheirNumber) {
  for_each_bf16_way([] {
    check_row_independence<bf16, bf16>();
    check_row_independence<bf16, float>();
  });
}
TEST(Matmul, WidenedRowsDoNotDependOnTheirNumberOnAnyTarget) {
  const Bf16Choice choice(Bf16Products::widened);
  for_each_target([] {
    check_row_independence<bf16, bf16>(130, 600, true, 8);
    check_row_independence<bf16, float>(520, 65, false, 0);
  });
}

/// Depths are summed in blocks of a fixed size, so rows of zeros behind the last change nothing.
TEST(Matmul, WidenedGradientsDoNotDependOnPadding) {
  const Bf16Choice choice(Bf16Products::widened);
  std::mt19937 generator(12);
  for (const std::int64_t k : {1, 250, 256, 700}) {
    auto a = Matrix<bf16>::random(k + 16, 70, generator);
    auto b = Matrix<bf16>::random(k + 16, 90, generator);
    for (std::int64_t row = k; row < k + 16; ++row) {
      std::fill_n(&a(row, 0), 70, bf16(0.0F));
      std::fill_n(&b(row, 0), 90, bf16(0.0F));
    }
    Matrix<float> padded(70, 90);
    Matrix<float> alone(70, 90);
    const MatmulOptions options{.transpose_a = true};
    matmul(a.view(), b.view(), padded.view(), options);
    matmul(a.view().slice(0, k), b.view().slice(0, k), alone.view(), options);
    EXPECT_TRUE(padded.same_bits(alone)) << k;
  }
}

template <typename T>
void check_thread_independence(Size size, MatmulOptions options, std::int64_t gap) {
  const auto [m, n, k] = size;
  std::mt19937 generator(4);
  auto a = options.transpose_a ? Matrix<T>::random(k, m, generator, 1.0, gap)
                               : Matrix<T>::random(m, k, generator, 1.0, gap);
  auto b = options.transpose_b ? Matrix<T>::random(n, k, generator) : Matrix<T>::random(k, n, generator);
  Matrix<float> one(m, n);
  Matrix<float> several(m, n);
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  matmul(a.view(), b.view(), one.view(), options);
  for (const int threads : {2, 3}) {
    omp_set_num_threads(threads);
    matmul(a.view(), b.view(), several.view(), options);
    EXPECT_TRUE(several.same_bits(one)) << threads << " threads: " << m << " x " << n << " x " << k
                                        << ", transposed " << options.transpose_a << options.transpose_b;
  }
  EXPECT_EQ(omp_get_max_threads(), 3);
  omp_set_num_threads(before);
}

TEST(Matmul, ThreadsDoNotChangeBits) {
  for (const MatmulOptions options : all_transposes()) {
    for (const Size size :
         {Size{8, 64, 4096}, {1, 512, 300}, {600, 48, 700}, {40, 1100, 64}, {530, 64, 2100}}) {
      for (const std::int64_t gap : {0, 3}) {
        check_thread_independence<float>(size, options, gap);
        for_each_bf16_way([&] { check_thread_independence<bf16>(size, options, gap); });
      }
    }
  }
}

TEST(Matmul, RunsOnSeveralThreadsAtOnce) {
  std::mt19937 generator(8);
  auto a = Matrix<bf16>::random(90, 70, generator);
  auto b = Matrix<bf16>::random(50, 70, generator);
  Matrix<float> expected(90, 50);
  matmul(a.view(), b.view(), expected.view(), {.transpose_b = true});
  std::vector<Matrix<float>> results(4, Matrix<float>(90, 50));
  std::vector<std::thread> threads;
  threads.reserve(results.size());
  for (auto& result : results) {
    threads.emplace_back([&] {
      omp_set_num_threads(1);
      for (std::int64_t rows = 90; rows > 0; rows -= 7) {  // new shapes, made by several threads at once
        matmul(a.view().slice(0, rows), b.view(), result.view().slice(0, rows), {.transpose_b = true});
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (auto& result : results) {
    EXPECT_TRUE(result.same_bits(expected));
  }
}

TEST(Matmul, ManyProductsAtOnceEqualEachAlone) {
  std::mt19937 generator(6);
  auto a = Matrix<bf16>::random(100, 64, generator);
  auto b = Matrix<bf16>::random(96, 64, generator);
  Matrix<float> batched(100, 96);
  Matrix<float> alone(100, 96);
  std::vector<MatmulOperands> products;
  for (const auto& [begin, count] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 33}, {33, 0}, {33, 67}}) {
    products.push_back({a.view().slice(begin, count), b.view(), batched.view().slice(begin, count)});
  }
  matmul_batch(products, {.transpose_b = true});
  matmul(a.view(), b.view(), alone.view(), {.transpose_b = true});
  EXPECT_TRUE(batched.same_bits(alone));
  matmul_batch({}, {});
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  Matrix<float> a(3, 4);
  Matrix<float> b(4, 5);
  Matrix<float> dst(3, 5);
  Matrix<float> wrong(3, 6);
  Matrix<bf16> half_b(4, 5);
  Matrix<bf16> half_dst(3, 5);
  Matrix<bf16> half_a(3, 4);
  EXPECT_THROW(matmul(a.view(), b.view(), wrong.view()), Error);
  EXPECT_THROW(matmul(a.view(), b.view(), dst.view(), {.transpose_a = true}), Error);
  EXPECT_THROW(matmul(a.view(), b.view(), dst.view(), {.transpose_b = true}), Error);
  EXPECT_THROW(matmul(a.view(), half_b.view(), dst.view()), Error);
  EXPECT_THROW(matmul(a.view(), b.view(), half_dst.view()), Error);
  EXPECT_THROW(matmul(half_a.view(), half_b.view(), half_dst.view(), {.accumulate = true}), Error);
  EXPECT_THROW(matmul(a.view(2), b.view(), dst.view()), Error);
}

/// Runs tests of products in a process where oneDNN sees an older CPU.
void run_on_older_cpu(const char* instruction_set) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    setenv("DNNL_MAX_CPU_ISA", instruction_set, 1);
    execl("/proc/self/exe", "expedite_kernels_test",
          "--gtest_filter=Matmul.*Agrees*:Matmul.*Depend*:Matmul.Threads*:GroupedMatmul.W*",
          "--gtest_brief=1", nullptr);
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the tests fail with DNNL_MAX_CPU_ISA=" << instruction_set;
}

TEST(MatmulOnOlderCpu, WorksWithAvx2) {
  run_on_older_cpu("AVX2");
}
TEST(MatmulOnOlderCpu, WorksWithAvx512ButWithoutBf16) {
  run_on_older_cpu("AVX512_CORE");
}

}  // namespace
}  // namespace expedite::kernels
