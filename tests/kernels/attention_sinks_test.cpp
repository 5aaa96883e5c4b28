// Attention sinks: a logit per head that takes its share of the softmax.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "expedite/base/error.h"
#include "expedite/base/random.h"
#include "tests/kernels/attention_problem.h"

namespace expedite::kernels::attention_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Problem with_sinks(Problem problem) {
  problem.sinks = true;
  return problem;
}

TEST_F(Attention, Sinks) {
  check(with_sinks(make_problem({1}, 1, 1, 8)));
  check(with_sinks(make_problem({67, 0, 5}, 4, 1, 64)));
  check(with_sinks(make_problem({300, 1, 1}, 8, 2, 33, 128)));
  check(with_sinks(make_problem({97}, 3, 3, 16, 1)));
  check(with_sinks(make_problem({0, 0}, 2, 1, 16)));
  check(with_sinks(make_problem({}, 2, 1, 16)));
}

TEST_F(Attention, SinksOfRandomShapes) {
  const Philox random(9, stream_of("attention sinks"));
  std::uint64_t draw = 0;
  const auto below = [&](std::uint64_t limit) {
    return static_cast<std::int64_t>(random.bits(draw++) % limit);
  };
  for (int i = 0; i < 15; ++i) {
    std::vector<std::int64_t> lengths;
    for (std::int64_t s = below(4); s >= 0; --s) {
      lengths.push_back(below(3) == 0 ? below(4) : below(220));
    }
    const std::int64_t kv_heads = 1 + below(3);
    check(with_sinks(make_problem(lengths, kv_heads * (1 + below(4)), kv_heads, 1 + below(100),
                                  below(2) == 0 ? 0 : 1 + below(200))));
  }
}

TEST_F(Attention, SinksOnEveryVectorTarget) {
  for_each_attention_target([] { check(with_sinks(make_problem({130, 0, 61, 7}, 4, 2, 72, 100))); });
}

TEST_F(Attention, SinksWithUnusualScales) {
  for (const float scale : {0.0F, 1.0F, -0.25F}) {
    Problem problem = with_sinks(make_problem({140}, 2, 1, 12));
    problem.options.scale = scale;
    check(problem);
  }
}

/// Parameters may be kept in f32 while activations are bf16.
TEST_F(Attention, SinksInF32BesideBf16) {
  const Problem problem = with_sinks(make_problem({70, 9}, 4, 2, 24));
  Inputs inputs = random_inputs<bf16>(problem);
  for (double& sink : inputs.sinks) {
    sink += 0.001;  // a value that bf16 does not have
    sink = static_cast<double>(static_cast<float>(sink));
  }
  const Results expected = Reference(problem, inputs).compute();
  const Results results = run<bf16, float>(problem, inputs, attention::best_arithmetic(DType::bf16));
  expect_close(results, expected, 8e-3, 1.6e-2, 1e-5);
}

TEST_F(Attention, GradientsWithSinksAreFiniteDifferences) {
  expect_finite_differences(with_sinks(make_problem({4, 7}, 4, 2, 5, 5)));
}

TEST_F(Attention, ThreadsDoNotChangeGradientsOfSinks) {
  const Problem problem = with_sinks(make_problem({130, 0, 61, 7, 200}, 6, 3, 32, 150));
  expect_same_bits_for_any_team<float>(problem, Arithmetic::portable);
  expect_same_bits_for_any_team<bf16>(problem, attention::best_arithmetic(DType::bf16));
}

/// Minus infinity takes no share; one far above all scores takes all of it, and nothing overflows.
TEST_F(Attention, SinksFarFromTheScores) {
  const Problem problem = make_problem({50, 1}, 2, 1, 16);
  Inputs inputs = random_inputs<float>(problem);
  const Results without = run<float>(problem, inputs, Arithmetic::portable);
  inputs.sinks = {-kInfinity, -1e30};
  const Results none = run<float>(problem, inputs, Arithmetic::portable);
  EXPECT_LT(relative_error(none.out, without.out), 1e-6);
  EXPECT_LT(relative_error(none.log_sum_exp, without.log_sum_exp), 1e-6);
  EXPECT_LT(relative_error(none.dq, without.dq), 1e-6);
  EXPECT_EQ(sink_gradients(none), Matrix({0.0, 0.0}));
  inputs.sinks = {300.0, 1e30};
  const Results all = run<float>(problem, inputs, Arithmetic::portable);
  const auto zeros = [](const Matrix& values) {
    return std::all_of(values.begin(), values.end(), [](double value) { return std::abs(value) < 1e-30; });
  };
  EXPECT_TRUE(zeros(all.out));
  EXPECT_TRUE(zeros(all.dq));
  EXPECT_TRUE(zeros(all.dk));
  EXPECT_TRUE(zeros(all.dv));
  EXPECT_EQ(sink_gradients(all), Matrix({0.0, 0.0}));
  EXPECT_EQ(all.log_sum_exp[0], 300.0);
}

TEST_F(Attention, SinksAmongLargeScores) {
  Problem problem = with_sinks(make_problem({150}, 2, 1, 16));
  problem.options.scale = 30.0F;
  Inputs inputs = random_inputs<float>(problem);
  inputs.sinks = {250.0, -400.0};
  const Results expected = Reference(problem, inputs).compute();
  // A score of 500 has an fp32 error of 3e-5, which is the relative error of its probability.
  expect_close(run<float>(problem, inputs, Arithmetic::portable), expected, 1e-3, 1e-3, 1e-5);
}

TEST_F(Attention, NanSinksAreNotHidden) {
  const Problem problem = make_problem({5}, 2, 1, 4);
  Inputs inputs = random_inputs<float>(problem);
  inputs.sinks = {std::numeric_limits<double>::quiet_NaN(), 0.0};
  const Results results = run<float>(problem, inputs, Arithmetic::portable);
  for (std::int64_t token = 0; token < 5; ++token) {
    EXPECT_TRUE(std::isnan(results.out[static_cast<std::size_t>(token * 8)]));
    EXPECT_TRUE(std::isfinite(results.out[static_cast<std::size_t>(token * 8 + 4)]));
  }
}

class SinkArguments : public Attention {
 protected:
  // Heads of 8: q [4, 16], k and v [4, 8].
  [[nodiscard]] static TensorView matrix(std::vector<float>& memory, std::int64_t rows,
                                         std::int64_t columns) {
    memory.assign(static_cast<std::size_t>(rows * columns), 0.5F);
    return {memory.data(), DType::f32, {rows, columns}};
  }
  void run(const ConstTensorView& sinks, const TensorView& dsinks) {
    const AttentionOptions options = {.heads = 2, .kv_heads = 1, .head_dim = 8};
    const std::vector<std::int64_t> bounds = {0, 4};
    MemoryPool pool;
    const AttentionOperands operands = {matrix(q_, 4, 16), matrix(k_, 4, 8), matrix(v_, 4, 8), sinks};
    const TensorView out = matrix(out_, 4, 16);
    const TensorView log_sum_exp = matrix(log_sum_exp_, 2, 4);
    attention_forward(operands, bounds, options, out, log_sum_exp, pool);
    attention_backward(matrix(dout_, 4, 16), operands, out, log_sum_exp, bounds, options,
                       {matrix(dq_, 4, 16), matrix(dk_, 4, 8), matrix(dv_, 4, 8), dsinks}, pool);
  }

  std::vector<float> q_, k_, v_, out_, log_sum_exp_, dout_, dq_, dk_, dv_;
};

TEST_F(SinkArguments, GradientsMayBeUnwanted) {
  std::vector<float> sinks = {0.5F, -1.0F};
  std::vector<float> dsinks = {1.0F, 2.0F};
  run(std::span(sinks), std::span(dsinks));
  const std::vector<float> dq = dq_;
  EXPECT_NE(dsinks, std::vector<float>({1.0F, 2.0F}));
  run(std::span(sinks), {});
  EXPECT_EQ(dq, dq_);
}

TEST_F(SinkArguments, ThatDoNotFitAreErrors) {
  std::vector<float> two(2);
  std::vector<float> three(3);
  std::vector<bf16> halves(2);
  EXPECT_NO_THROW(run({}, {}));
  EXPECT_NO_THROW(run(std::span(two), std::span(two)));
  EXPECT_THROW(run(std::span(three), {}), Error);
  EXPECT_THROW(run(std::span(halves), {}), Error);  // q is f32
  EXPECT_THROW(run(std::span(two), std::span(three)), Error);
  EXPECT_THROW(run(std::span(two), std::span(halves)), Error);
  EXPECT_THROW(run({}, std::span(two)), Error);
}

}  // namespace
}  // namespace expedite::kernels::attention_test
