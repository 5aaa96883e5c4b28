#include "expedite/kernels/optimizer.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <limits>

#include "tests/kernels/matrix.h"
#include "tests/kernels/targets.h"

namespace expedite::kernels {
namespace {

constexpr std::int64_t kSizes[] = {0, 1, 15, 16, 17, 1000, 70001};

// A parameter's optimizer state.
template <typename T>
struct State {
  State(std::int64_t count, std::mt19937& generator)
      : master(Matrix<float>::random(1, count, generator)),
        exp_avg(Matrix<float>::random(1, count, generator, 0.1)),
        exp_avg_sq(Matrix<float>::random(1, count, generator, 0.1)),
        gradient(Matrix<float>::random(1, count, generator, 0.5)),
        weight(1, count) {
    for (std::int64_t i = 0; i < count; ++i) {
      exp_avg_sq(0, i) *= exp_avg_sq(0, i);
    }
  }
  void step(const AdamwOptions& options, bool zero_gradient) {
    adamw(options, master.vector(), exp_avg.vector(), exp_avg_sq.vector(), gradient.vector(), weight.vector(),
          zero_gradient);
  }

  Matrix<float> master;
  Matrix<float> exp_avg;
  Matrix<float> exp_avg_sq;
  Matrix<float> gradient;
  Matrix<T> weight;
};

template <typename T>
void check_element(const State<T>& before, const State<T>& after, const AdamwOptions& options,
                   std::int64_t i) {
  const double beta1 = options.beta1;
  const double beta2 = options.beta2;
  const double gradient = before.gradient.at(0, i) * options.gradient_scale;
  const double mean = beta1 * before.exp_avg.at(0, i) + (1 - beta1) * gradient;
  const double square = beta2 * before.exp_avg_sq.at(0, i) + (1 - beta2) * gradient * gradient;
  const double mean_hat = mean / (1 - std::pow(beta1, options.step));
  const double square_hat = square / (1 - std::pow(beta2, options.step));
  const double update = mean_hat / (std::sqrt(square_hat) + options.epsilon);
  const double learning_rate = options.learning_rate;
  const double master =
      before.master.at(0, i) * (1 - learning_rate * options.weight_decay) - learning_rate * update;
  expect_close(after.exp_avg.at(0, i), mean, 1e-6, 0.1, "exp_avg", 0, i);
  expect_close(after.exp_avg_sq.at(0, i), square, 1e-6, 1e-6, "exp_avg_sq", 0, i);
  // The addends may cancel: errors are measured by them.
  const double addends = std::abs(before.master.at(0, i)) + std::abs(learning_rate * update);
  expect_close(after.master.at(0, i), master, 1e-6, addends, "master", 0, i);
  EXPECT_EQ(after.weight.at(0, i), static_cast<float>(T(static_cast<float>(after.master.at(0, i)))));
}

template <typename T>
void check_adamw() {
  std::mt19937 generator(1);
  for (const std::int64_t count : kSizes) {
    for (const std::int64_t step : {1, 2, 1000}) {
      const AdamwOptions options{.learning_rate = 0.02F, .step = step, .gradient_scale = 0.7F};
      State<T> state(count, generator);
      const State<T> before = state;
      const bool zero_gradient = step == 2;
      state.step(options, zero_gradient);
      for (std::int64_t i = 0; i < count; ++i) {
        check_element(before, state, options, i);
        ASSERT_EQ(state.gradient.at(0, i), zero_gradient ? 0.0 : before.gradient.at(0, i));
      }
    }
  }
}

TEST(Adamw, FollowsItsDefinition) {
  for_each_target(check_adamw<float>);
  for_each_target(check_adamw<bf16>);
}

TEST(Adamw, FindsTheMinimumOfAParabola) {
  std::mt19937 generator(2);
  State<float> state(40, generator);
  state.exp_avg.set_all(0.0F);
  state.exp_avg_sq.set_all(0.0F);
  AdamwOptions options{.learning_rate = 0.05F, .weight_decay = 0.0F};
  for (options.step = 1; options.step <= 400; ++options.step) {
    options.learning_rate = 0.05F * static_cast<float>(401 - options.step) / 400.0F;
    for (std::int64_t i = 0; i < 40; ++i) {
      state.gradient(0, i) = 2.0F * (state.master(0, i) - 3.0F);
    }
    state.step(options, true);
  }
  for (std::int64_t i = 0; i < 40; ++i) {
    EXPECT_NEAR(state.weight.at(0, i), 3.0, 1e-2);
  }
}

TEST(Adamw, AZeroGradientWithoutHistoryOnlyDecays) {
  std::mt19937 generator(3);
  State<float> state(20, generator);
  state.gradient.set_all(0.0F);
  state.exp_avg.set_all(0.0F);
  state.exp_avg_sq.set_all(0.0F);
  const auto before = state;
  state.step({.learning_rate = 0.5F, .weight_decay = 0.5F}, false);
  for (std::int64_t i = 0; i < 20; ++i) {
    EXPECT_NEAR(state.master.at(0, i), 0.75 * before.master.at(0, i), 1e-6);
  }
}

void check_sum_of_squares() {
  std::mt19937 generator(4);
  for (const std::int64_t count : kSizes) {
    auto x = Matrix<float>::random(1, count, generator, 3.0);
    double expected = 0.0;
    for (std::int64_t i = 0; i < count; ++i) {
      expected += x.at(0, i) * x.at(0, i);
    }
    EXPECT_NEAR(sum_of_squares(x.vector()), expected, 1e-13 * expected);
    for (const std::int64_t bad : {std::int64_t{0}, count / 2, count - 1}) {
      if (count > 0) {
        auto broken = x;
        broken(0, bad) = std::numeric_limits<float>::quiet_NaN();
        EXPECT_TRUE(std::isnan(sum_of_squares(broken.vector())));
        broken(0, bad) = -std::numeric_limits<float>::infinity();
        EXPECT_EQ(sum_of_squares(broken.vector()), std::numeric_limits<double>::infinity());
        broken(0, bad) = 3e38F;  // its square is far beyond fp32
        EXPECT_NEAR(sum_of_squares(broken.vector()) / 9e76, 1.0, 1e-5);
      }
    }
  }
}

TEST(SumOfSquares, IsExactAndCarriesNan) {
  for_each_target(check_sum_of_squares);
}

TEST(Optimizer, ThreadsDoNotChangeBits) {
  std::mt19937 generator(5);
  State<bf16> one(100003, generator);
  State<bf16> three = one;
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const double sum_one = sum_of_squares(one.gradient.vector());
  one.step({}, false);
  omp_set_num_threads(3);
  const double sum_three = sum_of_squares(three.gradient.vector());
  three.step({}, false);
  omp_set_num_threads(threads);
  EXPECT_EQ(sum_one, sum_three);
  EXPECT_TRUE(one.master.same_bits(three.master));
  EXPECT_TRUE(one.weight.same_bits(three.weight));
}

TEST(OptimizerErrors, NameWhatIsWrong) {
  std::mt19937 generator(6);
  State<float> state(4, generator);
  EXPECT_THROW(state.step({.step = 0}, false), Error);
  state.exp_avg = Matrix<float>(1, 3);
  try {
    state.step({}, false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "exp_avg has shape [3], but must have [4]");
  }
}

}  // namespace
}  // namespace expedite::kernels
