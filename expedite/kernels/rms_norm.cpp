#include "expedite/kernels/rms_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "expedite/kernels/arguments.h"
#include "expedite/kernels/block_sum.h"
#include "expedite/kernels/parallel.h"
#include "expedite/kernels/scratch.h"
#include "expedite/kernels/simd_targets.h"
#include "expedite/kernels/streaming.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expedite/kernels/rms_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "expedite/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace expedite::kernels::HWY_NAMESPACE {

// The last dimension is normalised; the dimensions between it and the first are G groups of one row. Forward
// in bf16, the sum over a group is taken in the loop that writes the group before it: memory is read while
// results are made, and the end of a sum is not waited for. Backward the same was slower on Zen 4.

struct Place {
  std::int64_t row;
  std::int64_t group = 0;

  HWY_INLINE void advance(std::int64_t groups) {
    if (++group == groups) {
      group = 0;
      ++row;
    }
  }
};

/// A weight as f32: itself, or a copy that lasts until the calling thread's next.
HWY_INLINE const float* widened(const float* weight, std::int64_t /*width*/) {
  return weight;
}
HWY_INLINE const float* widened(const bf16* weight, std::int64_t width) {
  struct WidenedWeight;
  auto* copy =
      static_cast<float*>(thread_scratch<WidenedWeight>(width * static_cast<std::int64_t>(sizeof(float))));
  for_each_vector(width, [&](std::int64_t i, const auto& vector)
                             EXPEDITE_SIMD_LAMBDA { vector.store(vector.load(weight + i), copy + i); });
  return copy;
}

template <typename T, typename Whole>
void rms_norm_rows(const ConstTensorView& x, const ConstTensorView& weight, float epsilon,
                   const TensorView& y, const TensorView& inverse_rms, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = weight.elements();
  const std::int64_t groups = width == 0 ? 0 : x.columns() / width;
  if (begin == end || groups == 0) {
    return;
  }
  const float* scale = widened(weight.as<T>(), width);
  Place place{begin};
  const T* in = x.row<T>(begin);
  float squares = fold_vectors(width, [&](std::int64_t i, const auto& vector, F32 sum) EXPEDITE_SIMD_LAMBDA {
    const F32 value = vector.load(in + i);
    return hn::MulAdd(value, value, sum);
  });
  while (place.row < end) {
    float& inverse_of_group = inverse_rms.row<float>(place.row)[place.group];
    inverse_of_group = 1.0F / std::sqrt(squares / static_cast<float>(width) + epsilon);
    const F32 inverse = set(inverse_of_group);
    T* out = y.row<T>(place.row) + place.group * width;
    const auto write = [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
      vector.store(hn::Mul(hn::Mul(vector.load(in + i), inverse), vector.load(scale + i)), out + i);
    };
    place.advance(groups);
    if (place.row == end) {
      for_each_vector<Whole>(width, write);
      return;
    }
    const T* next = x.row<T>(place.row) + place.group * width;
    const auto add_square = [next](std::int64_t i, const auto& vector, F32 sum) EXPEDITE_SIMD_LAMBDA {
      const F32 value = vector.load(next + i);
      return hn::MulAdd(value, value, sum);
    };
    if constexpr (std::is_same_v<T, float>) {  // bound by memory, which likes reads and writes by turns
      for_each_vector<Whole>(width, write);
      squares = fold_vectors(width, add_square);
    } else {
      squares =
          fold_vectors<Whole>(width, [&](std::int64_t i, const auto& vector, F32 sum) EXPEDITE_SIMD_LAMBDA {
            const F32 with_next = add_square(i, vector, sum);
            write(i, vector);
            return with_next;
          });
    }
    in = next;
  }
}

// One group of the gradient. With n = x * inverse and c = mean(dy * weight * n):
// dx = inverse * (dy * weight - n * c), dweight += dy * n.
template <typename T>
HWY_INLINE void rms_norm_backward_group(const T* dy, const T* x, const T* scale, float inverse_rms,
                                        std::int64_t width, bool accumulate_dx, T* dx, float* dweight) {
  const F32 inverse = set(inverse_rms);
  const float dot =
      fold_vectors(width, [&](std::int64_t i, const auto& vector, F32 sum) EXPEDITE_SIMD_LAMBDA {
        return hn::MulAdd(hn::Mul(vector.load(dy + i), vector.load(scale + i)), vector.load(x + i), sum);
      });
  const F32 mean = set(dot * inverse_rms / static_cast<float>(width));
  for_each_vector(width, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    const F32 gradient = vector.load(dy + i);
    const F32 normal = hn::Mul(vector.load(x + i), inverse);
    const F32 through = hn::NegMulAdd(normal, mean, hn::Mul(gradient, vector.load(scale + i)));
    F32 result = hn::Mul(inverse, through);
    if (accumulate_dx) {
      result = hn::Add(result, vector.load(dx + i));
    }
    vector.store(result, dx + i);
    vector.store(hn::MulAdd(gradient, normal, vector.load(dweight + i)), dweight + i);
  });
}

template <typename T>
void rms_norm_backward_rows(const ConstTensorView& dy, const ConstTensorView& x,
                            const ConstTensorView& weight, const ConstTensorView& inverse_rms,
                            const TensorView& dx, bool accumulate_dx, std::int64_t begin, std::int64_t end,
                            float* dweight) {
  const std::int64_t width = weight.elements();
  const std::int64_t groups = width == 0 ? 0 : x.columns() / width;
  for (std::int64_t r = begin; r < end; ++r) {
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t column = g * width;
      rms_norm_backward_group(dy.row<T>(r) + column, x.row<T>(r) + column, weight.as<T>(),
                              inverse_rms.row<float>(r)[g], width, accumulate_dx, dx.row<T>(r) + column,
                              dweight);
    }
  }
}

void rms_norm_range(const ConstTensorView& x, const ConstTensorView& weight, float epsilon,
                    const TensorView& y, const TensorView& inverse_rms, std::int64_t begin,
                    std::int64_t end) {
  const bool streamed = x.data() != y.data() && worth_streaming(y, weight.elements());
  if (x.dtype() == DType::bf16) {
    streamed ? rms_norm_rows<bf16, StreamedVector>(x, weight, epsilon, y, inverse_rms, begin, end)
             : rms_norm_rows<bf16, WholeVector>(x, weight, epsilon, y, inverse_rms, begin, end);
  } else {
    streamed ? rms_norm_rows<float, StreamedVector>(x, weight, epsilon, y, inverse_rms, begin, end)
             : rms_norm_rows<float, WholeVector>(x, weight, epsilon, y, inverse_rms, begin, end);
  }
  hwy::FlushStream();
}

void rms_norm_backward_range(const ConstTensorView& dy, const ConstTensorView& x,
                             const ConstTensorView& weight, const ConstTensorView& inverse_rms,
                             const TensorView& dx, bool accumulate_dx, std::int64_t begin, std::int64_t end,
                             float* dweight) {
  if (x.dtype() == DType::bf16) {
    rms_norm_backward_rows<bf16>(dy, x, weight, inverse_rms, dx, accumulate_dx, begin, end, dweight);
  } else {
    rms_norm_backward_rows<float>(dy, x, weight, inverse_rms, dx, accumulate_dx, begin, end, dweight);
  }
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels {

HWY_EXPORT(rms_norm_range);
HWY_EXPORT(rms_norm_backward_range);

namespace {

constexpr std::int64_t kGrain = 16;  // rows that are worth a thread

void require_norm(const ConstTensorView& x, const ConstTensorView& weight, const ConstTensorView& y,
                  const ConstTensorView& inverse_rms) {
  require_float("x", x);
  require_type("weight", weight, x.dtype());
  require_type("y", y, x.dtype());
  require_type("inverse_rms", inverse_rms, DType::f32);
  require(x.rank() == 2 || x.rank() == 3, "x must be [T, H] or [T, G, H]");
  require_shape("y", y, x.shape());
  require_shape("weight", weight, {x.size(x.rank() - 1)});
  require_shape("inverse_rms", inverse_rms, x.rank() == 2 ? Shape{x.size(0)} : Shape{x.size(0), x.size(1)});
}

}  // namespace

void rms_norm(ConstTensorView x, ConstTensorView weight, float epsilon, TensorView y,
              TensorView inverse_rms) {
  require_norm(x, weight, y, inverse_rms);
  parallel_for(x.rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(rms_norm_range)(x, weight, epsilon, y, inverse_rms, begin, end);
  });
}

void rms_norm_backward(ConstTensorView dy, ConstTensorView x, ConstTensorView weight,
                       ConstTensorView inverse_rms, TensorView dx, bool accumulate_dx, TensorView dweight) {
  require_norm(x, weight, dy, inverse_rms);
  require_type("dx", dx, x.dtype());
  require_shape("dx", dx, x.shape());
  require_type("dweight", dweight, DType::f32);
  require_shape("dweight", dweight, weight.shape());
  add_block_sums(x.rows(), dweight.span<float>(),
                 [&](std::int64_t begin, std::int64_t end, std::span<float> partial) {
                   HWY_DYNAMIC_DISPATCH(rms_norm_backward_range)
                   (dy, x, weight, inverse_rms, dx, accumulate_dx, begin, end, partial.data());
                 });
}

}  // namespace expedite::kernels
#endif  // HWY_ONCE
