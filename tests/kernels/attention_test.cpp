// Attention against a plain fp64 reference, over random shapes, both arithmetics, and finite differences.
#include "expedite/kernels/attention.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "expedite/base/error.h"
#include "expedite/base/random.h"
#include "expedite/kernels/attention_internal.h"
#include "tests/kernels/attention_reference.h"

namespace expedite::kernels {
namespace {

using attention::Arithmetic;
using reference::Inputs;
using reference::Matrix;
using reference::Problem;
using reference::Reference;
using reference::Results;

std::string describe(const Problem& problem) {
  std::string text = "lengths";
  for (const std::int64_t length : problem.lengths) {
    text += " " + std::to_string(length);
  }
  const AttentionOptions& options = problem.options;
  return text + ", heads " + std::to_string(options.heads) + "/" + std::to_string(options.kv_heads) +
         ", head_dim " + std::to_string(options.head_dim) + ", window " +
         std::to_string(options.sliding_window) + ", scale " + std::to_string(options.scale);
}

Problem make_problem(std::vector<std::int64_t> lengths, std::int64_t heads, std::int64_t kv_heads,
                     std::int64_t head_dim, std::int64_t window = 0) {
  return {std::move(lengths),
          {.heads = heads,
           .kv_heads = kv_heads,
           .head_dim = head_dim,
           .scale = 1.0F / std::sqrt(static_cast<float>(head_dim)),
           .sliding_window = window}};
}

// ---- The kernels, on guarded memory ----

/// A [rows, columns] matrix inside a larger one, whose other elements hold a pattern that must survive.
template <typename T>
class Guarded {
 public:
  Guarded(std::int64_t rows, std::int64_t columns, std::int64_t margin)
      : rows_(rows), columns_(columns), margin_(margin), stride_(columns + 2 * margin) {
    values_.resize((rows + 2) * stride_, T(kPattern));
  }

  [[nodiscard]] T* row(std::int64_t index) { return values_.data() + (index + 1) * stride_ + margin_; }
  [[nodiscard]] TensorView view() { return {row(0), dtype_of<T>(), {rows_, columns_}, stride_}; }
  [[nodiscard]] TensorView columns(std::int64_t begin, std::int64_t count) {
    return view().columns_slice(begin, count);
  }
  void set(const Matrix& from, std::int64_t column, std::int64_t count) {
    for (std::int64_t i = 0; i < rows_; ++i) {
      for (std::int64_t j = 0; j < count; ++j) {
        row(i)[column + j] = T(static_cast<float>(from[i * count + j]));
      }
    }
  }
  [[nodiscard]] Matrix get(std::int64_t column, std::int64_t count) {
    Matrix result;
    for (std::int64_t i = 0; i < rows_; ++i) {
      for (std::int64_t j = 0; j < count; ++j) {
        result.push_back(static_cast<double>(static_cast<float>(row(i)[column + j])));
      }
    }
    return result;
  }
  [[nodiscard]] bool guards_intact() {
    bool intact = true;
    for (std::int64_t i = -1; i <= rows_; ++i) {
      for (std::int64_t j = -margin_; j < columns_ + margin_; ++j) {
        const bool inside = i >= 0 && i < rows_ && j >= 0 && j < columns_;
        intact = intact && (inside || static_cast<float>(row(i)[j]) == kPattern);
      }
    }
    return intact;
  }

 private:
  // A value which, if a product read it, would be seen: exactly representable in bf16.
  static constexpr float kPattern = 16384.0F;
  std::int64_t rows_;
  std::int64_t columns_;
  std::int64_t margin_;
  std::int64_t stride_;
  std::vector<T> values_;
};

template <typename T>
Matrix random_matrix(std::int64_t elements, const char* name, std::uint64_t seed) {
  const Philox random(seed, stream_of(name));
  Matrix result;
  for (std::int64_t i = 0; i < elements; ++i) {  // rounded, so that the reference starts from the same values
    result.push_back(static_cast<double>(static_cast<float>(T(static_cast<float>(random.normal(i))))));
  }
  return result;
}

template <typename T>
Inputs random_inputs(const Problem& problem, std::uint64_t seed = 1) {
  const std::int64_t tokens = problem.tokens();
  return {random_matrix<T>(tokens * problem.query_columns(), "q", seed),
          random_matrix<T>(tokens * problem.key_columns(), "k", seed),
          random_matrix<T>(tokens * problem.key_columns(), "v", seed),
          random_matrix<T>(tokens * problem.query_columns(), "dout", seed)};
}

/// q, k and v are slices of one fused matrix, and so are their gradients.
template <typename T>
Results run(const Problem& problem, const Inputs& inputs, Arithmetic arithmetic) {
  const std::int64_t tokens = problem.tokens();
  const std::int64_t q_columns = problem.query_columns();
  const std::int64_t kv_columns = problem.key_columns();
  constexpr std::int64_t kMargin = 3;
  Guarded<T> fused(tokens, q_columns + 2 * kv_columns, kMargin);
  Guarded<T> fused_gradient(tokens, q_columns + 2 * kv_columns, kMargin);
  Guarded<T> out(tokens, q_columns, kMargin);
  Guarded<T> dout(tokens, q_columns, kMargin);
  Guarded<float> log_sum_exp(problem.options.heads, tokens, 0);
  fused.set(inputs.q, 0, q_columns);
  fused.set(inputs.k, q_columns, kv_columns);
  fused.set(inputs.v, q_columns + kv_columns, kv_columns);
  dout.set(inputs.dout, 0, q_columns);
  const std::vector<std::int64_t> bounds = problem.bounds();
  const auto slice = [&](Guarded<T>& of, int part) {
    return part == 0 ? of.columns(0, q_columns) : of.columns(q_columns + (part - 1) * kv_columns, kv_columns);
  };

  MemoryPool pool;
  attention::forward({slice(fused, 0), slice(fused, 1), slice(fused, 2), bounds, problem.options, out.view(),
                      log_sum_exp.view()},
                     arithmetic, pool);
  attention::backward(
      {dout.view(), slice(fused, 0), slice(fused, 1), slice(fused, 2), out.view(), log_sum_exp.view(), bounds,
       problem.options, slice(fused_gradient, 0), slice(fused_gradient, 1), slice(fused_gradient, 2)},
      arithmetic, pool);
  EXPECT_TRUE(fused.guards_intact());
  EXPECT_TRUE(fused_gradient.guards_intact());
  EXPECT_TRUE(out.guards_intact());
  EXPECT_TRUE(dout.guards_intact());
  EXPECT_TRUE(log_sum_exp.guards_intact());
  EXPECT_EQ(pool.current_bytes(), 0);
  return {out.get(0, q_columns), log_sum_exp.get(0, tokens), fused_gradient.get(0, q_columns),
          fused_gradient.get(q_columns, kv_columns), fused_gradient.get(q_columns + kv_columns, kv_columns)};
}

/// Largest difference, relative to the largest element or, where all cancel (the gradient of a lone token's
/// score), to the inputs, which are of order one; infinite if anything is not a number.
double relative_error(const Matrix& actual, const Matrix& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double largest = 1.0;
  double difference = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double here = std::abs(actual[i] - expected[i]);
    difference = std::max(difference, std::isnan(here) ? std::numeric_limits<double>::infinity() : here);
  }
  return difference / largest;
}

void expect_close(const Results& actual, const Results& expected, double tolerance, double gradient_tolerance,
                  double log_sum_exp_tolerance) {
  EXPECT_LT(relative_error(actual.out, expected.out), tolerance);
  EXPECT_LT(relative_error(actual.log_sum_exp, expected.log_sum_exp), log_sum_exp_tolerance);
  EXPECT_LT(relative_error(actual.dq, expected.dq), gradient_tolerance);
  EXPECT_LT(relative_error(actual.dk, expected.dk), gradient_tolerance);
  EXPECT_LT(relative_error(actual.dv, expected.dv), gradient_tolerance);
}

/// f32: 1e-5 of the largest element. bf16: 8e-3, two roundings to eight bits, of an operand and of the
/// result; twice that for gradients, which also see the rounding of `out`.
void check(const Problem& problem) {
  SCOPED_TRACE(describe(problem));
  {
    SCOPED_TRACE("f32");
    const Inputs inputs = random_inputs<float>(problem);
    const Results expected = Reference(problem, inputs).compute();
    expect_close(run<float>(problem, inputs, Arithmetic::portable), expected, 1e-5, 1e-5, 1e-5);
  }
  const Inputs inputs = random_inputs<bf16>(problem);
  const Results expected = Reference(problem, inputs).compute();
  for (const Arithmetic arithmetic : {Arithmetic::portable, Arithmetic::bf16_dot}) {
    SCOPED_TRACE(arithmetic == Arithmetic::portable ? "bf16, portable" : "bf16 dot products");
    if (attention::supports(arithmetic)) {
      expect_close(run<bf16>(problem, inputs, arithmetic), expected, 8e-3, 1.6e-2, 1e-5);
    }
  }
}

// ---- Tests ----

/// One thread, unless a test asks for more: a team as large as the machine waits when others use its cores.
class Attention : public testing::Test {
 protected:
  void SetUp() override { omp_set_num_threads(1); }
  void TearDown() override { omp_set_num_threads(threads_before_); }

 private:
  int threads_before_ = omp_get_max_threads();
};

TEST_F(Attention, HeadDimensions) {
  for (const std::int64_t dim : {1, 2, 3, 7, 8, 16, 17, 24, 32, 40, 64, 72, 80, 96, 127, 128, 160}) {
    check(make_problem({67, 5}, 2, 1, dim));
  }
}

TEST_F(Attention, SequenceLengthsAroundBlocks) {
  for (const std::int64_t length :
       {1, 2, 5, 6, 7, 15, 16, 17, 95, 96, 97, 127, 128, 129, 192, 193, 257, 300}) {
    check(make_problem({length}, 1, 1, 16));
  }
}

TEST_F(Attention, PackedSequences) {
  check(make_problem({1}, 1, 1, 8));
  check(make_problem({0, 3, 0, 0, 130, 1, 64, 0}, 4, 2, 32));
  check(make_problem({1, 1, 1, 1}, 2, 2, 24));
}

TEST_F(Attention, GroupedQueries) {
  for (const std::int64_t kv_heads : {1, 2, 3, 6}) {
    check(make_problem({40, 101}, 6, kv_heads, 20));
  }
}

TEST_F(Attention, SlidingWindows) {
  for (const std::int64_t window : {1, 2, 3, 16, 31, 96, 127, 128, 129, 250, 100000}) {
    check(make_problem({270, 33}, 2, 1, 16, window));
  }
  check(make_problem({270}, 2, 1, 16, std::numeric_limits<std::int64_t>::max()));
}

TEST_F(Attention, RandomShapes) {
  const Philox random(7, stream_of("attention shapes"));
  std::uint64_t draw = 0;
  const auto below = [&](std::uint64_t limit) {
    return static_cast<std::int64_t>(random.bits(draw++) % limit);
  };
  for (int i = 0; i < 25; ++i) {
    std::vector<std::int64_t> lengths;
    for (std::int64_t s = below(4); s >= 0; --s) {
      lengths.push_back(below(3) == 0 ? below(4) : below(220));
    }
    const std::int64_t kv_heads = 1 + below(3);
    check(make_problem(lengths, kv_heads * (1 + below(4)), kv_heads, 1 + below(128),
                       below(2) == 0 ? 0 : 1 + below(200)));
  }
}

TEST_F(Attention, UnusualScales) {
  for (const float scale : {0.0F, 1.0F, -0.25F}) {
    Problem problem = make_problem({140}, 2, 1, 12);
    problem.options.scale = scale;
    check(problem);
  }
}

TEST_F(Attention, LargeScoresDoNotOverflow) {
  Problem problem = make_problem({150}, 1, 1, 16);
  problem.options.scale = 30.0F;  // scores of hundreds: exp() of them overflows
  const Inputs inputs = random_inputs<float>(problem);
  const Results expected = Reference(problem, inputs).compute();
  // A score of 500 has an fp32 error of 3e-5, which is the relative error of its probability.
  expect_close(run<float>(problem, inputs, Arithmetic::portable), expected, 1e-3, 1e-3, 1e-5);
}

TEST_F(Attention, NoTokens) {
  check(make_problem({0, 0}, 2, 1, 16));
  check(make_problem({}, 2, 1, 16));
}

/// Every generation of vector code in the program that this CPU can run, not only the best one.
TEST_F(Attention, EveryVectorTarget) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    check(make_problem({130, 0, 61, 7}, 4, 2, 72, 100));
    check(make_problem({215}, 2, 1, 21));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

/// <dout, out> as a function of the inputs; its derivatives are what backward returns.
double objective(const Problem& problem, const Inputs& inputs) {
  const Results results = run<float>(problem, inputs, Arithmetic::portable);
  double sum = 0;
  for (std::size_t i = 0; i < inputs.dout.size(); ++i) {
    sum += results.out[i] * inputs.dout[i];
  }
  return sum;
}

TEST_F(Attention, GradientsAreFiniteDifferences) {
  const Problem problem = make_problem({4, 7}, 4, 2, 5, 5);
  const Inputs inputs = random_inputs<float>(problem);
  const Results results = run<float>(problem, inputs, Arithmetic::portable);
  const std::vector<std::pair<Matrix Inputs::*, const Matrix*>> pairs = {
      {&Inputs::q, &results.dq}, {&Inputs::k, &results.dk}, {&Inputs::v, &results.dv}};
  constexpr double kStep = 1.0 / 64;  // exact in fp32; the error of the difference is of its square
  for (const auto& [input, gradient] : pairs) {
    for (std::size_t i = 0; i < gradient->size(); ++i) {
      Inputs above = inputs;
      Inputs below = inputs;
      (above.*input)[i] += kStep;
      (below.*input)[i] -= kStep;
      const double difference = (objective(problem, above) - objective(problem, below)) / (2 * kStep);
      EXPECT_NEAR((*gradient)[i], difference, 3e-3) << "element " << i;
    }
  }
}

template <typename T>
void expect_same_bits_for_any_team(Arithmetic arithmetic) {
  const Problem problem = make_problem({130, 0, 61, 7, 200}, 6, 3, 32, 150);
  const Inputs inputs = random_inputs<T>(problem);
  const Results one = run<T>(problem, inputs, arithmetic);
  for (const int threads : {2, 3}) {
    omp_set_num_threads(threads);
    const Results many = run<T>(problem, inputs, arithmetic);
    EXPECT_EQ(one.out, many.out);
    EXPECT_EQ(one.log_sum_exp, many.log_sum_exp);
    EXPECT_EQ(one.dq, many.dq);
    EXPECT_EQ(one.dk, many.dk);
    EXPECT_EQ(one.dv, many.dv);
  }
}

TEST_F(Attention, ThreadsDoNotChangeResults) {
  expect_same_bits_for_any_team<float>(Arithmetic::portable);
  expect_same_bits_for_any_team<bf16>(attention::best_arithmetic(DType::bf16));
}

TEST_F(Attention, SequencesDoNotSeeEachOther) {
  const Problem together = make_problem({60, 97}, 2, 1, 16);
  const Problem alone = make_problem({97}, 2, 1, 16);
  const Inputs inputs = random_inputs<float>(together);
  const auto tail = [](const Matrix& all, std::int64_t from) {
    return Matrix(all.begin() + from, all.end());
  };
  const Inputs second = {tail(inputs.q, 60 * 32), tail(inputs.k, 60 * 16), tail(inputs.v, 60 * 16),
                         tail(inputs.dout, 60 * 32)};
  const Results both = run<float>(together, inputs, Arithmetic::portable);
  const Results one = run<float>(alone, second, Arithmetic::portable);
  EXPECT_EQ(tail(both.out, 60 * 32), one.out);
  EXPECT_EQ(tail(both.dq, 60 * 32), one.dq);
  EXPECT_EQ(tail(both.dk, 60 * 16), one.dk);
  EXPECT_EQ(tail(both.dv, 60 * 16), one.dv);
}

TEST_F(Attention, NonFiniteInputsPropagateWithinTheirSequence) {
  const Problem problem = make_problem({50, 70}, 2, 1, 16);
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()}) {
    for (const auto part : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::dout}) {
      Inputs inputs = random_inputs<bf16>(problem);
      const Results clean = run<bf16>(problem, inputs, attention::best_arithmetic(DType::bf16));
      (inputs.*part)[5] = bad;
      for (const Arithmetic arithmetic : {Arithmetic::portable, attention::best_arithmetic(DType::bf16)}) {
        const Results results = run<bf16>(problem, inputs, arithmetic);
        const auto second = static_cast<std::ptrdiff_t>(50 * problem.query_columns());
        EXPECT_TRUE(std::all_of(results.out.begin() + second, results.out.end(),
                                [](double value) { return std::isfinite(value); }));
        if (std::isnan(bad) && part != &Inputs::dout) {
          EXPECT_TRUE(std::any_of(results.out.begin(), results.out.begin() + second,
                                  [](double value) { return std::isnan(value); }));
        }
      }
      EXPECT_TRUE(std::all_of(clean.out.begin(), clean.out.end(), [](double v) { return std::isfinite(v); }));
    }
  }
}

TEST_F(Attention, BadArgumentsAreErrors) {
  const auto forward = [](const AttentionOptions& options, const std::vector<std::int64_t>& bounds,
                          std::int64_t q_columns, DType v_type) {
    std::vector<float> memory(1024);
    MemoryPool pool;
    const TensorView q(memory.data(), DType::f32, {4, q_columns});
    const TensorView k(memory.data(), DType::f32, {4, 8});
    const TensorView v(memory.data(), v_type, {4, 8});
    std::vector<float> out(1024);
    attention_forward(q, k, v, bounds, options, TensorView(out.data(), DType::f32, {4, q_columns}),
                      TensorView(memory.data(), DType::f32, {2, 4}), pool);
  };
  const AttentionOptions good = {.heads = 2, .kv_heads = 1, .head_dim = 8};
  EXPECT_NO_THROW(forward(good, {0, 4}, 16, DType::f32));
  EXPECT_THROW(forward(good, {0, 4}, 24, DType::f32), Error);
  EXPECT_THROW(forward(good, {0, 4}, 16, DType::bf16), Error);
  EXPECT_THROW(forward(good, {0, 3}, 16, DType::f32), Error);
  EXPECT_THROW(forward(good, {1, 4}, 16, DType::f32), Error);
  EXPECT_THROW(forward(good, {0, 5, 4}, 16, DType::f32), Error);
  EXPECT_THROW(forward(good, {}, 16, DType::f32), Error);
  AttentionOptions bad = good;
  bad.kv_heads = 3;
  EXPECT_THROW(forward(bad, {0, 4}, 16, DType::f32), Error);
  bad = good;
  bad.kv_heads = 0;
  EXPECT_THROW(forward(bad, {0, 4}, 16, DType::f32), Error);
  bad = good;
  bad.sliding_window = -1;
  EXPECT_THROW(forward(bad, {0, 4}, 16, DType::f32), Error);
  bad = good;
  bad.scale = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(forward(bad, {0, 4}, 16, DType::f32), Error);
}

}  // namespace
}  // namespace expedite::kernels
