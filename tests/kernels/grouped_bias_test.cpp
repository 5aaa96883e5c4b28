#include "expedite/kernels/grouped_bias.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "expedite/kernels/grouped_matmul.h"
#include "expedite/kernels/swiglu.h"
#include "tests/kernels/matrix.h"
#include "tests/kernels/targets.h"

namespace expedite::kernels {
namespace {

struct Case {
  std::vector<std::int64_t> tokens;  // of each expert
  std::int64_t columns;
  std::int64_t gap;
};
const Case kCases[] = {
    {{}, 8, 0},          {{0}, 8, 0},         {{0, 0, 0}, 3, 1},        {{1}, 1, 0},
    {{5, 0, 16}, 33, 2}, {{17, 1, 40}, 0, 0}, {{3, 130, 0, 7}, 170, 3}, {{200, 64, 65, 513}, 48, 0}};

enum class Weights { none, given };

// Rows of experts in padded blocks; those that pad are zero in dy, and weighted by zero.
template <typename T, typename B>
struct Problem {
  Problem(const Case& shape, std::mt19937& generator)
      : blocks(row_blocks(shape.tokens)),
        y(Matrix<T>::random(blocks.total, shape.columns, generator, 1.0, shape.gap)),
        dy(y),
        bias(Matrix<B>::random(std::ssize(shape.tokens), shape.columns, generator, 1.0, shape.gap)),
        weights(Matrix<float>::random(1, blocks.total, generator)),
        dweights(Matrix<float>::random(1, blocks.total, generator)),
        dbias(Matrix<float>::random(std::ssize(shape.tokens), shape.columns, generator, 1.0, shape.gap)) {
    for (std::size_t e = 0; e < shape.tokens.size(); ++e) {
      for (std::int64_t r = shape.tokens[e]; r < blocks.rows[e]; ++r) {
        weights(0, blocks.begin[e] + r) = 0.0F;
        for (std::int64_t c = 0; c < shape.columns; ++c) {
          dy(blocks.begin[e] + r, c) = T(0.0F);
        }
      }
    }
  }

  void run(Weights kind) {
    const auto of_weights = kind == Weights::none ? std::vector<ConstTensorView>()
                                                  : blocks_of(ConstTensorView(weights.vector()), blocks);
    const auto of_dy = blocks_of(ConstTensorView(dy.view()), blocks);
    grouped_bias(bias.view(), of_weights, blocks_of(y.view(), blocks));
    grouped_bias_input_grad(of_dy, bias.view(), blocks_of(dweights.vector(), blocks));
    grouped_bias_weight_grad(of_dy, of_weights, dbias.view());
  }

  RowBlocks blocks;
  Matrix<T> y;
  Matrix<T> dy;
  Matrix<B> bias;
  Matrix<float> weights;
  Matrix<float> dweights;
  Matrix<float> dbias;
};

template <typename T, typename B>
void check_expert(Problem<T, B>& after, Problem<T, B>& before, std::int64_t expert, Weights kind) {
  const auto e = static_cast<std::size_t>(expert);
  const std::int64_t begin = before.blocks.begin[e];
  const std::int64_t end = begin + before.blocks.rows[e];
  const auto weight = [&](std::int64_t r) { return kind == Weights::none ? 1.0 : before.weights.at(0, r); };
  for (std::int64_t r = begin; r < end; ++r) {
    double dot = 0.0;
    double magnitude = std::abs(before.dweights.at(0, r));
    for (std::int64_t c = 0; c < before.y.columns(); ++c) {
      const double addend = weight(r) * before.bias.at(expert, c);
      EXPECT_NEAR(after.y.at(r, c), before.y.at(r, c) + addend,
                  (rounding<T>() + 1e-7) * (std::abs(before.y.at(r, c)) + std::abs(addend)));
      dot += before.dy.at(r, c) * before.bias.at(expert, c);
      magnitude += std::abs(before.dy.at(r, c) * before.bias.at(expert, c));
    }
    EXPECT_NEAR(after.dweights.at(0, r), before.dweights.at(0, r) + dot, 1e-6 * magnitude);
  }
  for (std::int64_t c = 0; c < before.y.columns(); ++c) {
    double sum = before.dbias.at(expert, c);
    double magnitude = std::abs(sum);
    for (std::int64_t r = begin; r < end; ++r) {
      sum += weight(r) * before.dy.at(r, c);
      magnitude += std::abs(weight(r) * before.dy.at(r, c));
    }
    EXPECT_NEAR(after.dbias.at(expert, c), sum, 1e-6 * magnitude);
  }
}

template <typename T, typename B>
void check_all() {
  std::mt19937 generator(1);
  for (const Case& shape : kCases) {
    for (const Weights kind : {Weights::none, Weights::given}) {
      Problem<T, B> before(shape, generator);
      Problem<T, B> after = before;
      after.run(kind);
      for (std::int64_t e = 0; e < std::ssize(shape.tokens); ++e) {
        check_expert(after, before, e, kind);
      }
      EXPECT_TRUE(after.y.gaps_untouched());
      EXPECT_TRUE(after.dbias.gaps_untouched());
    }
  }
}

// One thread, unless a test asks for more: a team as large as the machine waits when others use its cores.
class GroupedBias : public testing::Test {
 protected:
  void SetUp() override { omp_set_num_threads(1); }
  void TearDown() override { omp_set_num_threads(threads_before_); }

 private:
  int threads_before_ = omp_get_max_threads();
};

TEST_F(GroupedBias, AgreesWithTheReference) {
  for_each_target(check_all<float, float>);
  for_each_target(check_all<bf16, bf16>);
  for_each_target(check_all<float, bf16>);
  for_each_target(check_all<bf16, float>);
}

// What padding rows get without weights must reach neither an expert's output nor any gradient.
TEST_F(GroupedBias, PaddingReachesNothing) {
  std::mt19937 generator(2);
  constexpr std::int64_t kWidth = 24;
  constexpr std::int64_t kHidden = 10;
  const std::vector<std::int64_t> tokens = {3, 0, 16, 21};
  const RowBlocks blocks = row_blocks(tokens);
  const auto weighted_rows = [&](Matrix<float>& weights) {
    for (std::size_t e = 0; e < tokens.size(); ++e) {
      for (std::int64_t r = tokens[e]; r < blocks.rows[e]; ++r) {
        weights(0, blocks.begin[e] + r) = 0.0F;
      }
    }
  };
  auto weights = Matrix<float>::random(1, blocks.total, generator);
  weighted_rows(weights);
  Matrix<float> gate_up(blocks.total, 2 * kWidth);
  gate_up.set_all(0.0F);
  auto first_bias = Matrix<float>::random(4, 2 * kWidth, generator);
  auto second_bias = Matrix<float>::random(4, kHidden, generator);
  grouped_bias(first_bias.view(), {}, blocks_of(gate_up.view(), blocks));
  Matrix<float> activated(blocks.total, kWidth);
  swiglu(gate_up.view(), weights.vector(), activated.view());
  Matrix<float> y(blocks.total, kHidden);
  y.set_all(0.0F);
  grouped_bias(second_bias.view(), blocks_of(ConstTensorView(weights.vector()), blocks),
               blocks_of(y.view(), blocks));
  Matrix<float> grad_activated(blocks.total, kWidth);
  grad_activated.set_all(0.0F);
  Matrix<float> grad_gate_up(blocks.total, 2 * kWidth);
  Matrix<float> dweights(1, blocks.total);
  swiglu_backward(grad_activated.view(), gate_up.view(), weights.vector(), grad_gate_up.view(),
                  dweights.vector());
  for (std::size_t e = 0; e < tokens.size(); ++e) {
    for (std::int64_t r = blocks.begin[e] + tokens[e]; r < blocks.begin[e] + blocks.rows[e]; ++r) {
      EXPECT_EQ(gate_up.at(r, 1), first_bias.at(static_cast<std::int64_t>(e), 1));
      EXPECT_EQ(activated.at(r, 1), 0.0);
      EXPECT_EQ(y.at(r, 1), 0.0);
      EXPECT_EQ(grad_gate_up.at(r, 1), 0.0);
      EXPECT_EQ(dweights.at(0, r), 0.0);
    }
  }
}

TEST_F(GroupedBias, GradientsAreFiniteDifferences) {
  std::mt19937 generator(3);
  Problem<float, float> problem({{3, 0, 20}, 5, 0}, generator);
  problem.dweights.set_all(0.0F);
  problem.dbias.set_all(0.0F);
  Problem<float, float> after = problem;
  after.run(Weights::given);
  const auto loss = [&] {
    Problem<float, float> moved = problem;
    moved.run(Weights::given);
    double sum = 0.0;
    for (std::int64_t r = 0; r < moved.y.rows(); ++r) {
      for (std::int64_t c = 0; c < 5; ++c) {
        sum += moved.y.at(r, c) * moved.dy.at(r, c);
      }
    }
    return sum;
  };
  const auto difference = [&](float& value) {
    const float kept = value;
    value = kept + 0.5F;  // linear: a wide step costs no accuracy
    const double above = loss();
    value = kept - 0.5F;
    const double below = loss();
    value = kept;
    return above - below;
  };
  for (std::int64_t r = 0; r < problem.y.rows(); ++r) {
    EXPECT_NEAR(after.dweights.at(0, r), difference(problem.weights(0, r)), 1e-4);
  }
  for (std::int64_t e = 0; e < 3; ++e) {
    for (std::int64_t c = 0; c < 5; ++c) {
      EXPECT_NEAR(after.dbias.at(e, c), difference(problem.bias(e, c)), 1e-4);
    }
  }
}

TEST_F(GroupedBias, ThreadsDoNotChangeBits) {
  std::mt19937 generator(4);
  Problem<bf16, bf16> one({{1300, 0, 7, 129}, 300, 0}, generator);
  Problem<bf16, bf16> three = one;
  one.run(Weights::given);
  omp_set_num_threads(3);
  three.run(Weights::given);
  EXPECT_TRUE(one.y.same_bits(three.y));
  EXPECT_TRUE(one.dweights.same_bits(three.dweights));
  EXPECT_TRUE(one.dbias.same_bits(three.dbias));
}

// Padding is not part of a sum: the gradient has the bits of the rows alone.
TEST_F(GroupedBias, PaddingDoesNotChangeBits) {
  std::mt19937 generator(5);
  const Case shape = {{70, 3, 510, 1030}, 40, 0};
  Problem<bf16, float> problem(shape, generator);
  Matrix<float> padded(4, 40);
  padded.set_all(0.0F);
  auto bare = padded;
  const TensorView dy = problem.dy.view();
  const TensorView weights = problem.weights.vector();
  const auto run = [&](std::span<const std::int64_t> rows, const TensorView& dbias) {
    std::vector<ConstTensorView> of_dy;
    std::vector<ConstTensorView> of_weights;
    for (std::size_t e = 0; e < rows.size(); ++e) {
      of_dy.push_back(dy.slice(problem.blocks.begin[e], rows[e]));
      of_weights.push_back(weights.slice(problem.blocks.begin[e], rows[e]));
    }
    grouped_bias_weight_grad(of_dy, of_weights, dbias);
  };
  run(problem.blocks.rows, padded.view());
  run(shape.tokens, bare.view());
  EXPECT_TRUE(padded.same_bits(bare));
}

TEST(GroupedBiasErrors, NameWhatDoesNotFit) {
  Matrix<float> rows(4, 6);
  Matrix<float> bias(2, 6);
  Matrix<float> four(1, 4);
  Matrix<bf16> halves(1, 4);
  const std::vector<TensorView> y = {rows.view(), rows.view()};
  const std::vector<TensorView> one = {rows.view()};
  const std::vector<ConstTensorView> dy = {rows.view(), rows.view()};
  const std::vector<ConstTensorView> fitting = {four.vector(), four.vector()};
  const std::vector<TensorView> fitting_gradients = {four.vector(), four.vector()};
  EXPECT_NO_THROW(grouped_bias(bias.view(), fitting, y));
  EXPECT_NO_THROW(grouped_bias_input_grad(dy, bias.view(), fitting_gradients));
  EXPECT_NO_THROW(grouped_bias_weight_grad(dy, fitting, bias.view()));
  try {
    grouped_bias(bias.view(), {}, one);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "biases have shape [2, 6], but must have [1, N]: a bias for each block");
  }
  Matrix<float> narrow(2, 5);
  EXPECT_THROW(grouped_bias(narrow.view(), {}, y), Error);
  EXPECT_THROW(grouped_bias(bias.view(), {fitting.data(), 1}, y), Error);
  const std::vector<ConstTensorView> of_halves = {halves.vector(), halves.vector()};
  EXPECT_THROW(grouped_bias(bias.view(), of_halves, y), Error);
  EXPECT_THROW(grouped_bias_weight_grad(dy, of_halves, bias.view()), Error);
  Matrix<bf16> half_bias(2, 6);
  EXPECT_THROW(grouped_bias_weight_grad(dy, {}, half_bias.view()), Error);
  EXPECT_THROW(grouped_bias_input_grad(dy, bias.view(), {}), Error);
}

}  // namespace
}  // namespace expedite::kernels
