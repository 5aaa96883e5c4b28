// Attention against a plain fp64 reference, over random shapes, both arithmetics, and finite differences.
#include "expedite/kernels/attention.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "expedite/base/error.h"
#include "tests/kernels/attention_problem.h"

namespace expedite::kernels::attention_test {
namespace {

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

TEST_F(Attention, EveryVectorTarget) {
  for_each_attention_target([] {
    check(make_problem({130, 0, 61, 7}, 4, 2, 72, 100));
    check(make_problem({215}, 2, 1, 21));
  });
}

TEST_F(Attention, GradientsAreFiniteDifferences) {
  expect_finite_differences(make_problem({4, 7}, 4, 2, 5, 5));
}

TEST_F(Attention, ThreadsDoNotChangeResults) {
  const Problem problem = make_problem({130, 0, 61, 7, 200}, 6, 3, 32, 150);
  expect_same_bits_for_any_team<float>(problem, Arithmetic::portable);
  expect_same_bits_for_any_team<bf16>(problem, attention::best_arithmetic(DType::bf16));
}

TEST_F(Attention, SequencesDoNotSeeEachOther) {
  const Problem together = make_problem({60, 97}, 2, 1, 16);
  const Problem alone = make_problem({97}, 2, 1, 16);
  const Inputs inputs = random_inputs<float>(together);
  const auto tail = [](const Matrix& all, std::int64_t from) {
    return Matrix(all.begin() + from, all.end());
  };
  const Inputs second = {tail(inputs.q, 60 * 32),
                         tail(inputs.k, 60 * 16),
                         tail(inputs.v, 60 * 16),
                         tail(inputs.dout, 60 * 32),
                         {}};
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
    attention_forward({q, k, v}, bounds, options, TensorView(out.data(), DType::f32, {4, q_columns}),
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
}  // namespace expedite::kernels::attention_test
