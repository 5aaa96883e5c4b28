#include "expedite/kernels/optimizer.h"

#include <cmath>
#include <cstdint>
#include <span>

#include "expedite/kernels/arguments.h"
#include "expedite/kernels/block_sum.h"
#include "expedite/kernels/parallel.h"
#include "expedite/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expedite/kernels/optimizer.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "expedite/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace expedite::kernels::HWY_NAMESPACE {

// One step's factors, made once from the options.
struct AdamwFactors {
  explicit AdamwFactors(const AdamwOptions& options)
      : gradient_scale(options.gradient_scale),
        keep1(1.0F - options.beta1),
        beta2(options.beta2),
        keep2(1.0F - options.beta2),
        epsilon(options.epsilon),
        decay(options.learning_rate * options.weight_decay) {
    const auto step = static_cast<double>(options.step);
    const double bias1 = 1.0 - std::pow(static_cast<double>(options.beta1), step);
    const double bias2 = 1.0 - std::pow(static_cast<double>(options.beta2), step);
    unbias2 = static_cast<float>(1.0 / std::sqrt(bias2));
    rate = static_cast<float>(static_cast<double>(options.learning_rate) / bias1);
  }

  float gradient_scale;
  float keep1;  // 1 - beta1
  float beta2;
  float keep2;  // 1 - beta2
  float epsilon;
  float decay;          // learning_rate * weight_decay
  float unbias2 = 1.0;  // 1 / sqrt(1 - beta2^step)
  float rate = 0.0;     // learning_rate / (1 - beta1^step)
};

// The five arrays of a parameter.
template <typename T>
struct AdamwState {
  float* master;
  float* exp_avg;
  float* exp_avg_sq;
  float* gradient;
  T* weight;
};

template <typename T>
void adamw_elements(const AdamwFactors& factors, const AdamwState<T>& state, bool zero_gradient,
                    std::int64_t begin, std::int64_t end) {
  for_each_vector<ExactVector>(
      end - begin, [&](std::int64_t offset, const auto& vector) EXPEDITE_SIMD_LAMBDA {
        const std::int64_t i = begin + offset;
        const F32 g = hn::Mul(vector.load(state.gradient + i), set(factors.gradient_scale));
        F32 m = vector.load(state.exp_avg + i);
        m = hn::MulAdd(hn::Sub(g, m), set(factors.keep1), m);
        F32 v = vector.load(state.exp_avg_sq + i);
        v = hn::MulAdd(v, set(factors.beta2), hn::Mul(hn::Mul(g, g), set(factors.keep2)));
        const F32 w = vector.load(state.master + i);
        const F32 denominator = hn::MulAdd(hn::Sqrt(v), set(factors.unbias2), set(factors.epsilon));
        const F32 decayed = hn::NegMulAdd(w, set(factors.decay), w);
        const F32 result = hn::NegMulAdd(hn::Div(m, denominator), set(factors.rate), decayed);
        vector.store(m, state.exp_avg + i);
        vector.store(v, state.exp_avg_sq + i);
        vector.store(result, state.master + i);
        vector.store(result, state.weight + i);
        if (zero_gradient) {
          vector.store(zero(), state.gradient + i);
        }
      });
}

void adamw_range(const AdamwOptions& options, const TensorView& master, const TensorView& exp_avg,
                 const TensorView& exp_avg_sq, const TensorView& gradient, const TensorView& weight,
                 bool zero_gradient, std::int64_t begin, std::int64_t end) {
  const AdamwFactors factors(options);
  auto* w = master.as<float>();
  auto* m = exp_avg.as<float>();
  auto* v = exp_avg_sq.as<float>();
  auto* g = gradient.as<float>();
  if (weight.dtype() == DType::bf16) {
    adamw_elements<bf16>(factors, {w, m, v, g, weight.as<bf16>()}, zero_gradient, begin, end);
  } else {
    adamw_elements<float>(factors, {w, m, v, g, weight.as<float>()}, zero_gradient, begin, end);
  }
}

// The square of an f32 is exact in double.
double squares(const float* x, std::int64_t count) {
  const hn::ScalableTag<double> wide;
  const hn::Rebind<float, decltype(wide)> narrow;
  const auto width = static_cast<std::int64_t>(hn::Lanes(wide));
  auto sum0 = hn::Zero(wide);
  auto sum1 = hn::Zero(wide);
  std::int64_t i = 0;
  for (; i + 2 * width <= count; i += 2 * width) {
    const auto a = hn::PromoteTo(wide, hn::LoadU(narrow, x + i));
    const auto b = hn::PromoteTo(wide, hn::LoadU(narrow, x + i + width));
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  double sum = hn::GetLane(hn::SumOfLanes(wide, hn::Add(sum0, sum1)));
  for (; i < count; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return sum;
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels {

HWY_EXPORT(adamw_range);
HWY_EXPORT(squares);

namespace {

void require_state(std::string_view name, const ConstTensorView& x, std::int64_t elements) {
  require_type(name, x, DType::f32);
  require_shape(name, x, {elements});
}

}  // namespace

void adamw(const AdamwOptions& options, TensorView master, TensorView exp_avg, TensorView exp_avg_sq,
           TensorView gradient, TensorView weight, bool zero_gradient) {
  constexpr std::int64_t kGrain = 16384;  // elements that are worth a thread
  const std::int64_t count = master.elements();
  require_state("master", master, count);
  require_state("exp_avg", exp_avg, count);
  require_state("exp_avg_sq", exp_avg_sq, count);
  require_state("gradient", gradient, count);
  require_float("weight", weight);
  require_shape("weight", weight, {count});
  require(options.step >= 1, "AdamW counts steps from 1, not {}", options.step);
  parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(adamw_range)
    (options, master, exp_avg, exp_avg_sq, gradient, weight, zero_gradient, begin, end);
  });
}

double sum_of_squares(ConstTensorView x) {
  constexpr std::int64_t kBlock = 16384;
  const std::span<const float> values = x.span<float>();
  double sum = 0.0;
  add_block_sums(
      x.elements(), std::span<double>(&sum, 1),
      [&](std::int64_t begin, std::int64_t end, std::span<double> partial) {
        partial[0] += HWY_DYNAMIC_DISPATCH(squares)(values.data() + begin, end - begin);
      },
      kBlock);
  return sum;
}

}  // namespace expedite::kernels
#endif  // HWY_ONCE
