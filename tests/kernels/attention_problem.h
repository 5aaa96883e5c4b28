// Runs attention on guarded memory and holds it against its reference: what attention's tests share.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "expedite/base/random.h"
#include "expedite/kernels/attention_internal.h"
#include "tests/kernels/attention_reference.h"

namespace expedite::kernels::attention_test {

using attention::Arithmetic;
using reference::Inputs;
using reference::Matrix;
using reference::Problem;
using reference::Reference;
using reference::Results;

inline std::string describe(const Problem& problem) {
  std::string text = "lengths";
  for (const std::int64_t length : problem.lengths) {
    text += " " + std::to_string(length);
  }
  const AttentionOptions& options = problem.options;
  return text + ", heads " + std::to_string(options.heads) + "/" + std::to_string(options.kv_heads) +
         ", head_dim " + std::to_string(options.head_dim) + ", value_dim " +
         std::to_string(options.value_dim) + (problem.sinks ? ", sinks" : "") + ", window " +
         std::to_string(options.sliding_window) + ", scale " + std::to_string(options.scale);
}

inline Problem make_problem(std::vector<std::int64_t> lengths, std::int64_t heads, std::int64_t kv_heads,
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
          random_matrix<T>(tokens * problem.value_columns(), "v", seed),
          random_matrix<T>(tokens * problem.out_columns(), "dout", seed),
          random_matrix<T>(problem.sinks ? problem.options.heads : 0, "sinks", seed)};
}

/// What gradients of sinks are added to.
inline constexpr float kSinkGradientBefore = 0.25F;

/// q, k and v are slices of one fused matrix, and so are their gradients. Sinks are of type S.
template <typename T, typename S = T>
Results run(const Problem& problem, const Inputs& inputs, Arithmetic arithmetic) {
  const std::int64_t tokens = problem.tokens();
  const std::int64_t q_columns = problem.query_columns();
  const std::int64_t k_columns = problem.key_columns();
  const std::int64_t v_columns = problem.value_columns();
  const std::int64_t out_columns = problem.out_columns();
  constexpr std::int64_t kMargin = 3;
  Guarded<T> fused(tokens, q_columns + k_columns + v_columns, kMargin);
  Guarded<T> fused_gradient(tokens, q_columns + k_columns + v_columns, kMargin);
  Guarded<T> out(tokens, out_columns, kMargin);
  Guarded<T> dout(tokens, out_columns, kMargin);
  Guarded<S> sinks(1, std::ssize(inputs.sinks), kMargin);
  Guarded<float> dsinks(1, std::ssize(inputs.sinks), kMargin);
  Guarded<float> log_sum_exp(problem.options.heads, tokens, 0);
  fused.set(inputs.q, 0, q_columns);
  fused.set(inputs.k, q_columns, k_columns);
  fused.set(inputs.v, q_columns + k_columns, v_columns);
  dout.set(inputs.dout, 0, out_columns);
  sinks.set(inputs.sinks, 0, std::ssize(inputs.sinks));
  dsinks.set(Matrix(inputs.sinks.size(), kSinkGradientBefore), 0, std::ssize(inputs.sinks));
  const std::vector<std::int64_t> bounds = problem.bounds();
  const auto slice = [&](Guarded<T>& of, int part) {
    const std::int64_t begin[] = {0, q_columns, q_columns + k_columns};
    const std::int64_t count[] = {q_columns, k_columns, v_columns};
    return of.columns(begin[part], count[part]);
  };
  const AttentionOperands operands = {slice(fused, 0), slice(fused, 1), slice(fused, 2), sinks.view()[0]};

  MemoryPool pool;
  attention::forward({operands, bounds, problem.options, out.view(), log_sum_exp.view()}, arithmetic, pool);
  attention::backward(
      {dout.view(),
       operands,
       out.view(),
       log_sum_exp.view(),
       bounds,
       problem.options,
       {slice(fused_gradient, 0), slice(fused_gradient, 1), slice(fused_gradient, 2), dsinks.view()[0]}},
      arithmetic, pool);
  EXPECT_TRUE(fused.guards_intact());
  EXPECT_TRUE(fused_gradient.guards_intact());
  EXPECT_TRUE(out.guards_intact());
  EXPECT_TRUE(dout.guards_intact());
  EXPECT_TRUE(log_sum_exp.guards_intact());
  EXPECT_TRUE(dsinks.guards_intact());
  EXPECT_EQ(pool.current_bytes(), 0);
  return {out.get(0, out_columns),
          log_sum_exp.get(0, tokens),
          fused_gradient.get(0, q_columns),
          fused_gradient.get(q_columns, k_columns),
          fused_gradient.get(q_columns + k_columns, v_columns),
          dsinks.get(0, std::ssize(inputs.sinks))};
}

/// Largest difference, relative to the largest element or, where all cancel (the gradient of a lone token's
/// score), to the inputs, which are of order one; infinite if anything is not a number.
inline double relative_error(const Matrix& actual, const Matrix& expected) {
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

/// What was added to the sinks' gradients.
inline Matrix sink_gradients(const Results& results) {
  Matrix added = results.dsinks;
  for (double& value : added) {
    value -= kSinkGradientBefore;
  }
  return added;
}

inline void expect_close(const Results& actual, const Results& expected, double tolerance,
                         double gradient_tolerance, double log_sum_exp_tolerance) {
  EXPECT_LT(relative_error(actual.out, expected.out), tolerance);
  EXPECT_LT(relative_error(actual.log_sum_exp, expected.log_sum_exp), log_sum_exp_tolerance);
  EXPECT_LT(relative_error(actual.dq, expected.dq), gradient_tolerance);
  EXPECT_LT(relative_error(actual.dk, expected.dk), gradient_tolerance);
  EXPECT_LT(relative_error(actual.dv, expected.dv), gradient_tolerance);
  EXPECT_LT(relative_error(sink_gradients(actual), expected.dsinks), gradient_tolerance);
}

/// f32: 1e-5 of the largest element. bf16: 8e-3, two roundings to eight bits, of an operand and of the
/// result; twice that for gradients, which also see the rounding of `out`.
inline void check(const Problem& problem) {
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

/// <dout, out> as a function of the inputs; its derivatives are what backward returns.
inline double objective(const Problem& problem, const Inputs& inputs) {
  const Results results = run<float>(problem, inputs, Arithmetic::portable);
  double sum = 0;
  for (std::size_t i = 0; i < inputs.dout.size(); ++i) {
    sum += results.out[i] * inputs.dout[i];
  }
  return sum;
}

/// Of a small problem, in f32.
inline void expect_finite_differences(const Problem& problem) {
  SCOPED_TRACE(describe(problem));
  const Inputs inputs = random_inputs<float>(problem);
  Results results = run<float>(problem, inputs, Arithmetic::portable);
  results.dsinks = sink_gradients(results);
  const std::vector<std::pair<Matrix Inputs::*, const Matrix*>> pairs = {{&Inputs::q, &results.dq},
                                                                         {&Inputs::k, &results.dk},
                                                                         {&Inputs::v, &results.dv},
                                                                         {&Inputs::sinks, &results.dsinks}};
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
void expect_same_bits_for_any_team(const Problem& problem, Arithmetic arithmetic) {
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
    EXPECT_EQ(one.dsinks, many.dsinks);
  }
}

/// Every generation of vector code in the program that this CPU can run, not only the best one: attention is
/// compiled for more than other kernels.
template <typename Body>
void for_each_attention_target(const Body& body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

/// One thread, unless a test asks for more: a team as large as the machine waits when others use its cores.
class Attention : public testing::Test {
 protected:
  void SetUp() override { omp_set_num_threads(1); }
  void TearDown() override { omp_set_num_threads(threads_before_); }

 private:
  int threads_before_ = omp_get_max_threads();
};

}  // namespace expedite::kernels::attention_test
