#include <algorithm>
#include <cmath>

#include "bench/case_builders.h"
#include "bench/reference_kernels.h"
#include "bench/stream_copy.h"
#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/optimizer.h"
#include "expedite/kernels/rms_norm.h"
#include "expedite/kernels/swiglu.h"
#include "tests/reference/norm.h"

namespace expedite::bench {
namespace {

using reference::Matrix;

constexpr float kEpsilon = 1e-6F;

/// Of sums over so many rows in f32.
double column_tolerance(std::int64_t rows) {
  return 1e-6 + 0x1p-24 * std::sqrt(static_cast<double>(rows));
}
double column_scale(std::int64_t rows) {
  return std::sqrt(static_cast<double>(std::max<std::int64_t>(rows, 1)));
}

double bytes_of(const CaseText& text) {
  return static_cast<double>(text.sizes[0] * text.sizes[1] * size_of(text.dtype));
}

KernelCase make_rms_norm(const CaseText& text) {
  const std::int64_t tokens = text.sizes[0];
  const std::int64_t width = text.sizes[1];
  require(width > 0, "case '{}': rows of no elements have no norm; H is 1 or more", text.text);
  const DType type = text.dtype;
  const bool backward = text.is("backward");
  const double work = (backward ? 3 : 2) * bytes_of(text) + 4.0 * static_cast<double>(tokens);
  return make_case(Limit::copy, work, [=](Operands& operands) -> PreparedKernel {
    const TensorView dy = backward ? operands.values(type, {tokens, width}) : TensorView();
    const TensorView x = operands.values(type, {tokens, width});
    const TensorView weight = operands.values(type, {width});
    const TensorView y = operands.zeros(type, {tokens, width});
    const TensorView inverse_rms = operands.zeros(DType::f32, {tokens});
    if (!backward) {
      return {[=] { kernels::rms_norm(x, weight, kEpsilon, y, inverse_rms); },
              [=] {
                Matrix wanted = reference::rms_norm(doubles(x), doubles(weight).values, kEpsilon);
                return std::vector{result_in("y", y, std::move(wanted), rounding(type) + 1e-6, 1e-30)};
              }};
    }
    kernels::rms_norm(x, weight, kEpsilon, y, inverse_rms);
    const TensorView dx = y;
    const TensorView dweight = operands.zeros(DType::f32, {width});
    return {[=] { kernels::rms_norm_backward(dy, x, weight, inverse_rms, dx, false, dweight); },
            [=] {
              Matrix wanted_dweight = doubles(dweight);
              Matrix wanted = reference::rms_norm_backward(doubles(dy), doubles(x), doubles(weight).values,
                                                           kEpsilon, wanted_dweight.values);
              return std::vector{result_in("dx", dx, std::move(wanted), rounding(type) + 2e-6, 1.0),
                                 result_in("dweight", dweight, std::move(wanted_dweight),
                                           column_tolerance(tokens), column_scale(tokens))};
            }};
  });
}

/// gpt-oss's activation, with a limit that values in [-1, 1) meet.
kernels::GluOptions glu_options(const CaseText& text) {
  return text.is("clamped") ? kernels::GluOptions{1.702F, 0.75F, 1.0F} : kernels::GluOptions{};
}

Glu glu_reference(const kernels::GluOptions& options) {
  return {options.alpha, std::isinf(options.limit) ? 0.0 : options.limit, options.up_offset};
}

KernelCase make_swiglu(const CaseText& text) {
  const std::int64_t rows = text.sizes[0];
  const std::int64_t width = text.sizes[1];
  const DType type = text.dtype;
  const bool backward = text.is("backward");
  const bool weighted = text.is("weighted");
  const kernels::GluOptions options = glu_options(text);
  const double weight_bytes = weighted ? 4.0 * static_cast<double>(rows) : 0.0;
  const double work = backward ? 5 * bytes_of(text) + 2 * weight_bytes : 3 * bytes_of(text) + weight_bytes;
  const double tolerance = rounding(type) + 4e-6;
  return make_case(Limit::copy, work, [=](Operands& operands) -> PreparedKernel {
    const auto weights_of = [&] { return weighted ? operands.values(DType::f32, {rows}) : TensorView(); };
    const auto doubles_of = [=](const TensorView& weights) {
      return weighted ? doubles(weights).values : std::vector<double>();
    };
    const TensorView gate_up = operands.values(type, {rows, 2 * width});
    if (!backward) {
      const TensorView weights = weights_of();
      const TensorView y = operands.zeros(type, {rows, width});
      return {[=] { kernels::swiglu(gate_up, weights, y, options); },
              [=] {
                Matrix wanted = glu(doubles(gate_up), doubles_of(weights), glu_reference(options));
                return std::vector{result_in("y", y, std::move(wanted), tolerance, 1e-30)};
              }};
    }
    const TensorView dy = operands.values(type, {rows, width});
    const TensorView weights = weights_of();
    const TensorView dgate_up = operands.zeros(type, {rows, 2 * width});
    const TensorView dweights = weights_of();
    return {
        [=] { kernels::swiglu_backward(dy, gate_up, weights, dgate_up, dweights, options); },
        [=] {
          GluGradients wanted =
              glu_backward(doubles(dy), doubles(gate_up), doubles_of(weights), glu_reference(options));
          std::vector results{result_in("dgate_up", dgate_up, std::move(wanted.dgate_up), tolerance, 1e-3)};
          if (weighted) {
            results.push_back(result_in("dweights", dweights, std::move(wanted.dweights), 5e-6,
                                        static_cast<double>(std::max<std::int64_t>(width, 1))));
          }
          return results;
        }};
  });
}

KernelCase make_add_bias(const CaseText& text) {
  const std::int64_t rows = text.sizes[0];
  const std::int64_t width = text.sizes[1];
  const DType type = text.dtype;
  const bool backward = text.is("backward");
  const auto width_bytes = static_cast<double>(width * size_of(type));
  const double work =
      backward ? bytes_of(text) + 8.0 * static_cast<double>(width) : 2 * bytes_of(text) + width_bytes;
  return make_case(Limit::copy, work, [=](Operands& operands) -> PreparedKernel {
    const TensorView x = operands.values(type, {rows, width});
    if (backward) {
      const TensorView dbias = operands.values(DType::f32, {width});
      return {[=] { kernels::bias_backward(x, dbias); },
              [=] {
                Matrix wanted = doubles(dbias);
                const Matrix dy = doubles(x);
                for (std::int64_t t = 0; t < rows; ++t) {
                  for (std::int64_t i = 0; i < width; ++i) {
                    wanted(i, 0) += dy(t, i);
                  }
                }
                return std::vector{
                    result_in("dbias", dbias, std::move(wanted), column_tolerance(rows), column_scale(rows))};
              }};
    }
    const TensorView bias = operands.values(type, {width});
    return {[=] { kernels::add_bias(bias, x); },
            [=] {
              Matrix wanted = doubles(x);
              const Matrix addend = doubles(bias);
              for (std::int64_t t = 0; t < rows; ++t) {
                for (std::int64_t i = 0; i < width; ++i) {
                  wanted(t, i) += addend(i, 0);
                }
              }
              return std::vector{result_in("x", x, std::move(wanted), rounding(type) + 1e-7, 1.0)};
            }};
  });
}

/// What AdamW (optimizer.h) makes of one step's numbers, [n, 1] each.
struct AdamwState {
  Matrix master, average, square;
};

AdamwState adamw_reference(AdamwState state, const Matrix& gradient, const kernels::AdamwOptions& options) {
  const double beta1 = options.beta1;
  const double beta2 = options.beta2;
  const double rate = options.learning_rate;
  for (std::int64_t i = 0; i < gradient.rows; ++i) {
    double& average = state.average(i, 0);
    double& square = state.square(i, 0);
    average = beta1 * average + (1 - beta1) * gradient(i, 0);
    square = beta2 * square + (1 - beta2) * gradient(i, 0) * gradient(i, 0);
    const double mean = average / (1 - std::pow(beta1, options.step));
    const double deviation = std::sqrt(square / (1 - std::pow(beta2, options.step)));
    state.master(i, 0) *= 1 - rate * options.weight_decay;
    state.master(i, 0) -= rate * mean / (deviation + options.epsilon);
  }
  return state;
}

/// Reads master, both averages and gradient; writes all four and the weight.
KernelCase make_adamw(const CaseText& text) {
  const std::int64_t count = text.sizes[0];
  const DType type = text.dtype;
  const double bytes_each = 4 * 4 + 4 * 4 + static_cast<double>(size_of(type));
  return make_case(
      Limit::copy, bytes_each * static_cast<double>(count), [=](Operands& operands) -> PreparedKernel {
        const TensorView master = operands.values(DType::f32, {count});
        const TensorView average = operands.zeros(DType::f32, {count});
        const TensorView square = operands.zeros(DType::f32, {count});
        const TensorView gradient = operands.values(DType::f32, {count});
        const TensorView weight = operands.zeros(type, {count});
        const auto results = [=] {
          AdamwState wanted = adamw_reference({doubles(master), doubles(average), doubles(square)},
                                              doubles(gradient), kernels::AdamwOptions{});
          return std::vector{result_in("weight", weight, wanted.master, rounding(type) + 1e-6, 1.0),
                             result_in("master", master, wanted.master, 1e-6, 1.0),
                             result_in("exp_avg", average, wanted.average, 1e-6, 0.1),
                             result_in("exp_avg_sq", square, wanted.square, 1e-6, 1e-6),
                             result_in("gradient", gradient, Matrix(count, 1), 0.0, 1.0)};
        };
        return {[=] { kernels::adamw({}, master, average, square, gradient, weight, true); }, results};
      });
}

/// No kernel of a model: it shows how far memcpy, the yardstick, is from what the memory can do.
KernelCase make_streaming_copy(const CaseText& text) {
  const std::int64_t count = text.sizes[0];
  const DType type = text.dtype;
  const double work = 2.0 * static_cast<double>(size_of(type)) * static_cast<double>(count);
  return make_case(Limit::copy, work, [=](Operands& operands) -> PreparedKernel {
    const TensorView src = operands.values(type, {count});
    const TensorView dst = operands.zeros(type, {count});
    return {[=] { stream_copy(src.data(), dst.data(), src.bytes()); },
            [=] { return std::vector{result_in("dst", dst, doubles(src), 0.0, 1.0)}; }};
  });
}

}  // namespace

std::vector<CaseBuilder> row_builders() {
  return {
      {{"rms_norm", kDirections, kFloats, "TxH", {}, {}, "rms_norm backward bf16 65536x1024"}, make_rms_norm},
      {{"swiglu",
        kDirections,
        kFloats,
        "RxF",
        {},
        {{"weighted"}, {"clamped"}},
        "swiglu backward bf16 65536x512 weighted"},
       make_swiglu},
      {{"add_bias", kDirections, kFloats, "TxN", {}, {}, "add_bias bf16 8192x3072"}, make_add_bias},
      {{"adamw", {}, kFloats, "N", {}, {}, "adamw bf16 16777216"}, make_adamw},
      {{"streaming_copy", {}, kFloats, "N", {}, {}, "streaming_copy bf16 100663296"}, make_streaming_copy}};
}

}  // namespace expedite::bench
