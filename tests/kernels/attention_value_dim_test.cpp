// Attention whose value heads are of another size than its query and key heads.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "expedite/base/error.h"
#include "expedite/base/random.h"
#include "tests/kernels/attention_problem.h"

namespace expedite::kernels::attention_test {
namespace {

Problem with_values(Problem problem, std::int64_t value_dim) {
  problem.options.value_dim = value_dim;
  return problem;
}

struct Dims {
  std::int64_t head;
  std::int64_t value;
};

TEST_F(Attention, ValueHeadsOfAnotherSize) {
  for (const Dims dims : {Dims{192, 128}, {24, 16}, {5, 3}, {3, 5}, {16, 24}, {1, 17}, {64, 1}, {8, 200}}) {
    check(with_values(make_problem({67, 0, 5}, 2, 1, dims.head), dims.value));
    check(with_values(make_problem({193}, 4, 4, dims.head, 50), dims.value));
  }
}

TEST_F(Attention, ValueHeadsOfRandomSizes) {
  const Philox random(8, stream_of("attention value heads"));
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
    Problem problem = make_problem(lengths, kv_heads * (1 + below(3)), kv_heads, 1 + below(200),
                                   below(2) == 0 ? 0 : 1 + below(200));
    problem.sinks = below(2) == 0;
    check(with_values(problem, 1 + below(200)));
  }
}

TEST_F(Attention, ValueHeadsOnEveryVectorTarget) {
  for_each_attention_target([] {
    check(with_values(make_problem({130, 0, 61, 7}, 4, 2, 72, 100), 40));
    check(with_values(make_problem({115}, 2, 1, 7), 21));
  });
}

TEST_F(Attention, GradientsOfValueHeadsAreFiniteDifferences) {
  expect_finite_differences(with_values(make_problem({4, 7}, 4, 2, 5, 5), 3));
  expect_finite_differences(with_values(make_problem({6}, 2, 1, 2), 6));
}

/// Value heads of the default size are no case of their own.
TEST_F(Attention, ValueHeadsOfTheDefaultSizeKeepTheirBits) {
  const Problem problem = make_problem({70, 3}, 4, 2, 24);
  const Inputs inputs = random_inputs<bf16>(problem);
  const Arithmetic arithmetic = attention::best_arithmetic(DType::bf16);
  const Results unsaid = run<bf16>(problem, inputs, arithmetic);
  const Results said = run<bf16>(with_values(problem, 24), inputs, arithmetic);
  EXPECT_EQ(unsaid.out, said.out);
  EXPECT_EQ(unsaid.dq, said.dq);
  EXPECT_EQ(unsaid.dk, said.dk);
  EXPECT_EQ(unsaid.dv, said.dv);
}

/// A value's column is computed from that column alone: zeros beside it change nothing.
TEST_F(Attention, ValuesPaddedWithZerosAreTheSame) {
  const Problem narrow = with_values(make_problem({90}, 1, 1, 20), 12);
  const Problem wide = make_problem({90}, 1, 1, 20);
  const Inputs inputs = random_inputs<float>(narrow);
  const auto padded = [](const Matrix& values) {
    Matrix result;
    for (std::size_t i = 0; i < values.size(); i += 12) {
      result.insert(result.end(), values.begin() + static_cast<std::ptrdiff_t>(i),
                    values.begin() + static_cast<std::ptrdiff_t>(i + 12));
      result.insert(result.end(), 8, 0.0);
    }
    return result;
  };
  const Results one = run<float>(narrow, inputs, Arithmetic::portable);
  const Results other =
      run<float>(wide, {inputs.q, inputs.k, padded(inputs.v), padded(inputs.dout), {}}, Arithmetic::portable);
  EXPECT_EQ(padded(one.out), other.out);
  EXPECT_EQ(padded(one.dv), other.dv);
  EXPECT_LT(relative_error(one.dq, other.dq), 1e-6);
  EXPECT_LT(relative_error(one.dk, other.dk), 1e-6);
}

TEST_F(Attention, ValueHeadsThatDoNotFitAreErrors) {
  const std::vector<std::int64_t> bounds = {0, 4};
  const auto forward = [&](std::int64_t value_dim, std::int64_t v_columns, std::int64_t out_columns) {
    std::vector<float> memory(256);
    MemoryPool pool;
    const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
      return TensorView(memory.data(), DType::f32, {rows, columns});
    };
    std::vector<float> out(256);
    attention_forward({matrix(4, 16), matrix(4, 8), matrix(4, v_columns)}, bounds,
                      {.heads = 2, .kv_heads = 1, .head_dim = 8, .value_dim = value_dim},
                      TensorView(out.data(), DType::f32, {4, out_columns}), matrix(2, 4), pool);
  };
  EXPECT_NO_THROW(forward(6, 6, 12));
  EXPECT_NO_THROW(forward(0, 8, 16));
  EXPECT_THROW(forward(6, 8, 12), Error);
  EXPECT_THROW(forward(6, 6, 16), Error);
  EXPECT_THROW(forward(0, 6, 12), Error);
  EXPECT_THROW(forward(-6, 6, 12), Error);
}

}  // namespace
}  // namespace expedite::kernels::attention_test
