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

float weight_of_row(const ConstTensorView& weights, std::int64_t row) {
  return weights.data() == nullptr ? 1.0F : *weights.row<float>(row);
}

// sums += weight * dy for rows [begin, end), row after row.
template <typename T>
void add_weighted_rows(const ConstTensorView& dy, const ConstTensorView& weights, std::int64_t begin,
                       std::int64_t end, float* sums) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* from = dy.row<T>(row);
    const F32 weight = set(weight_of_row(weights, row));
    for_each_vector(dy.columns(), [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
      vector.store(hn::MulAdd(weight, vector.load(from + i), vector.load(sums + i)), sums + i);
    });
  }
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

void add_weighted_rows_of(const ConstTensorView& dy, const ConstTensorView& weights, std::int64_t begin,
                          std::int64_t end, float* sums) {
  dy.dtype() == DType::f32 ? add_weighted_rows<float>(dy, weights, begin, end, sums)
                           : add_weighted_rows<bf16>(dy, weights, begin, end, sums);
}

// to += from.
void add_sums(const float* from, float* to, std::int64_t count) {
  accumulate_row(from, to, count);
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels {

HWY_EXPORT(add_bias_row_of);
HWY_EXPORT(dot_bias_row_of);
HWY_EXPORT(add_weighted_rows_of);
HWY_EXPORT(add_sums);

namespace {

constexpr std::int64_t kRowGrain = 16;  // rows that are worth a thread
constexpr std::int64_t kShortSum = 64;  // rows summed on their own, so that rounding does not grow with all
constexpr std::int64_t kLongSum = 512;  // rows that a thread sums: some of these

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

float weight_in_block(std::span<const ConstTensorView> weights, std::size_t block, std::int64_t row) {
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

// Rows of one expert, at most kLongSum.
struct Stretch {
  std::size_t block;
  std::int64_t begin;
  std::int64_t end;
};

std::vector<Stretch> stretches_of(std::span<const ConstTensorView> dy) {
  std::vector<Stretch> stretches;
  for (std::size_t block = 0; block < dy.size(); ++block) {
    for (std::int64_t begin = 0; begin < dy[block].rows(); begin += kLongSum) {
      stretches.push_back({block, begin, std::min(begin + kLongSum, dy[block].rows())});
    }
  }
  return stretches;
}

// sums += the stretch's; `scratch` has as many elements.
void sum_stretch(const Stretch& stretch, const ConstTensorView& dy, const ConstTensorView& weights,
                 std::span<float> scratch, float* sums) {
  for (std::int64_t begin = stretch.begin; begin < stretch.end; begin += kShortSum) {
    std::ranges::fill(scratch, 0.0F);
    HWY_DYNAMIC_DISPATCH(add_weighted_rows_of)
    (dy, weights, begin, std::min(begin + kShortSum, stretch.end), scratch.data());
    HWY_DYNAMIC_DISPATCH(add_sums)(scratch.data(), sums, std::ssize(scratch));
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
    (bias[static_cast<std::int64_t>(block)], weight_in_block(weights, block, row), y[block], row);
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
  const std::vector<Stretch> stretches = stretches_of(dy);
  const auto columns = static_cast<std::size_t>(dbias.columns());
  std::vector<float> sums(stretches.size() * columns);
  parallel_for(std::ssize(stretches), 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> scratch(columns);
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const std::size_t block = stretches[i].block;
      sum_stretch(stretches[i], dy[block], weights.empty() ? ConstTensorView() : weights[block], scratch,
                  sums.data() + i * columns);
    }
  });
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    HWY_DYNAMIC_DISPATCH(add_sums)
    (sums.data() + i * columns, dbias.row<float>(static_cast<std::int64_t>(stretches[i].block)),
     dbias.columns());
  }
}

}  // namespace expedite::kernels
#endif  // HWY_ONCE
