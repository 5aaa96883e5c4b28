#include "expedite/kernels/grouped_bias.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "expedite/kernels/arguments.h"
#include "expedite/kernels/parallel.h"
#include "expedite/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expedite/kernels/grouped_bias.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "expedite/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace expedite::kernels::HWY_NAMESPACE {

template <typename B, typename T>
void add_bias_row(const B* bias, float weight, T* y, std::int64_t count) {
  const F32 factor = set(weight);
  for_each_vector(count, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    vector.store(hn::MulAdd(factor, vector.load(bias + i), vector.load(y + i)), y + i);
  });
}

template <typename T, typename B>
float dot_bias_row(const T* dy, const B* bias, std::int64_t count) {
  return fold_vectors(count, [&](std::int64_t i, const auto& vector, F32 sum) EXPEDITE_SIMD_LAMBDA {
    return hn::MulAdd(vector.load(dy + i), vector.load(bias + i), sum);
  });
}

// sums += weight * dy.
template <typename T>
void add_weighted_row(const T* dy, float weight, float* sums, std::int64_t count) {
  const F32 factor = set(weight);
  for_each_vector(count, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    vector.store(hn::MulAdd(factor, vector.load(dy + i), vector.load(sums + i)), sums + i);
  });
}

// Highway exports functions, not templates of them.
void add_bias_row_of(const ConstTensorView& bias, float weight, const TensorView& y, std::int64_t row) {
  const std::int64_t count = y.columns();
  if (bias.dtype() == DType::f32) {
    y.dtype() == DType::f32 ? add_bias_row(bias.as<float>(), weight, y.row<float>(row), count)
                            : add_bias_row(bias.as<float>(), weight, y.row<bf16>(row), count);
  } else {
    y.dtype() == DType::f32 ? add_bias_row(bias.as<bf16>(), weight, y.row<float>(row), count)
                            : add_bias_row(bias.as<bf16>(), weight, y.row<bf16>(row), count);
  }
}

float dot_bias_row_of(const ConstTensorView& dy, std::int64_t row, const ConstTensorView& bias) {
  const std::int64_t count = dy.columns();
  if (bias.dtype() == DType::f32) {
    return dy.dtype() == DType::f32 ? dot_bias_row(dy.row<float>(row), bias.as<float>(), count)
                                    : dot_bias_row(dy.row<bf16>(row), bias.as<float>(), count);
  }
  return dy.dtype() == DType::f32 ? dot_bias_row(dy.row<float>(row), bias.as<bf16>(), count)
                                  : dot_bias_row(dy.row<bf16>(row), bias.as<bf16>(), count);
}

// Columns [column, column + count) of one row.
void add_weighted_row_of(const ConstTensorView& dy, std::int64_t row, float weight, std::int64_t column,
                         std::int64_t count, float* sums) {
  if (dy.dtype() == DType::f32) {
    add_weighted_row(dy.row<float>(row) + column, weight, sums, count);
  } else {
    add_weighted_row(dy.row<bf16>(row) + column, weight, sums, count);
  }
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels {

HWY_EXPORT(add_bias_row_of);
HWY_EXPORT(dot_bias_row_of);
HWY_EXPORT(add_weighted_row_of);

namespace {

constexpr std::int64_t kRowGrain = 16;  // rows that are worth a thread
constexpr std::int64_t kStrip = 512;    // columns that a thread sums at a time: their sums stay in L1
constexpr std::int64_t kRowBlock = 64;  // rows summed on their own, so that rounding does not grow with all

template <typename View>
void check_blocks_of_rows(const char* name, std::span<const View> x, ConstTensorView bias) {
  if (bias.rank() != 2 || bias.size(0) != std::ssize(x)) [[unlikely]] {
    fail("biases have shape {}, but must have [{}, N]: a bias for each block", to_string(bias.shape()),
         x.size());
  }
  for (const View& block : x) {
    require_float(name, block);
    require_matrix(name, block);
    require_shape(name, block, {block.rows(), bias.columns()});
  }
}

template <typename View, typename Block>
void check_row_weights(const char* name, std::span<const View> weights, std::span<const Block> x) {
  require(weights.size() == x.size(), "{} of {} blocks do not fit {} blocks of rows", name, weights.size(),
          x.size());
  for (std::size_t e = 0; e < x.size(); ++e) {
    require_type(name, weights[e], DType::f32);
    require_shape(name, weights[e], {x[e].rows()});
  }
}

float weight_of_row(std::span<const ConstTensorView> weights, std::size_t block, std::int64_t row) {
  return weights.empty() ? 1.0F : *weights[block].row<float>(row);
}

// Calls body(block, row) for every row of every block, split over threads by rows.
template <typename View, typename Body>
void for_each_row(std::span<const View> x, const Body& body) {
  std::vector<std::int64_t> ends;
  ends.reserve(x.size());
  std::int64_t total = 0;
  for (const View& block : x) {
    ends.push_back(total += block.rows());
  }
  parallel_for(total, kRowGrain, [&](std::int64_t begin, std::int64_t end) {
    auto block = static_cast<std::size_t>(std::ranges::upper_bound(ends, begin) - ends.begin());
    for (std::int64_t at = begin; at < end; ++at) {
      while (at >= ends[block]) {
        ++block;
      }
      body(block, at - (ends[block] - x[block].rows()));
    }
  });
}

// One expert's bias, columns [column, column + count).
void sum_strip(const ConstTensorView& dy, std::span<const ConstTensorView> weights, std::size_t block,
               std::int64_t column, std::int64_t count, float* dbias) {
  float sums[kStrip] = {};
  float partial[kStrip];
  for (std::int64_t begin = 0; begin < dy.rows(); begin += kRowBlock) {
    std::fill_n(partial, count, 0.0F);
    for (std::int64_t row = begin; row < std::min(begin + kRowBlock, dy.rows()); ++row) {
      HWY_DYNAMIC_DISPATCH(add_weighted_row_of)
      (dy, row, weight_of_row(weights, block, row), column, count, partial);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      sums[i] += partial[i];
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    dbias[i] += sums[i];
  }
}

}  // namespace

void grouped_bias(ConstTensorView bias, std::span<const ConstTensorView> weights,
                  std::span<const TensorView> y) {
  require_float("bias", bias);
  check_blocks_of_rows("y", y, bias);
  if (!weights.empty()) {
    check_row_weights("weights", weights, y);
  }
  for_each_row(y, [&](std::size_t block, std::int64_t row) {
    HWY_DYNAMIC_DISPATCH(add_bias_row_of)
    (bias[static_cast<std::int64_t>(block)], weight_of_row(weights, block, row), y[block], row);
  });
}

void grouped_bias_input_grad(std::span<const ConstTensorView> dy, ConstTensorView bias,
                             std::span<const TensorView> dweights) {
  require_float("bias", bias);
  check_blocks_of_rows("dy", dy, bias);
  check_row_weights("dweights", dweights, dy);
  for_each_row(dy, [&](std::size_t block, std::int64_t row) {
    *dweights[block].row<float>(row) +=
        HWY_DYNAMIC_DISPATCH(dot_bias_row_of)(dy[block], row, bias[static_cast<std::int64_t>(block)]);
  });
}

void grouped_bias_weight_grad(std::span<const ConstTensorView> dy, std::span<const ConstTensorView> weights,
                              TensorView dbias) {
  require_type("dbias", dbias, DType::f32);
  check_blocks_of_rows("dy", dy, dbias);
  if (!weights.empty()) {
    check_row_weights("weights", weights, dy);
  }
  // Strip by strip of all experts: threads get as much each, however uneven the experts' rows are.
  const std::int64_t experts = std::ssize(dy);
  const std::int64_t columns = dbias.columns();
  const std::int64_t strips = (columns + kStrip - 1) / kStrip;
  parallel_for(strips * experts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t expert = item % experts;
      const std::int64_t column = item / experts * kStrip;
      sum_strip(dy[static_cast<std::size_t>(expert)], weights, static_cast<std::size_t>(expert), column,
                std::min(kStrip, columns - column), dbias.row<float>(expert) + column);
    }
  });
}

}  // namespace expedite::kernels
#endif  // HWY_ONCE
