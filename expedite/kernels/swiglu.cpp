#include "expedite/kernels/swiglu.h"

#include <cstdint>

#include "expedite/kernels/arguments.h"
#include "expedite/kernels/parallel.h"
#include "expedite/kernels/simd_targets.h"
#include "expedite/kernels/streaming.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expedite/kernels/swiglu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "expedite/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace expedite::kernels::HWY_NAMESPACE {

// Rows are often a page each, where the hardware stops fetching ahead: both kernels fetch what they will read
// this many bytes later, wherever that is. Measured on a Zen 4 core; a page ahead, lines would push each
// other out of the cache.
template <typename T>
constexpr std::int64_t kAhead = (sizeof(T) == sizeof(float) ? 2048 : 3072) /
                                static_cast<std::int64_t>(sizeof(T));

template <typename T, typename Whole>
void swiglu_rows(const ConstTensorView& gate_up, const TensorView& y, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = y.columns();
  for (std::int64_t r = begin; r < end; ++r) {
    const T* gate = gate_up.row<T>(r);
    const T* up = gate + width;
    T* out = y.row<T>(r);
    for_each_vector<Whole>(width, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
      hwy::Prefetch(gate + kAhead<T> + i);
      hwy::Prefetch(up + kAhead<T> + i);
      const F32 g = at_least(vector.load(gate + i), kSigmoidBound);
      vector.store(hn::Mul(hn::Mul(g, fast_sigmoid<T>(g)), vector.load(up + i)), out + i);
    });
  }
}

// With s = sigmoid(gate): d silu / d gate = s + gate * s * (1 - s).
template <typename T, typename Whole>
void swiglu_backward_rows(const ConstTensorView& dy, const ConstTensorView& gate_up,
                          const TensorView& dgate_up, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = dy.columns();
  for (std::int64_t r = begin; r < end; ++r) {
    const T* gradient = dy.row<T>(r);
    const T* gate = gate_up.row<T>(r);
    const T* up = gate + width;
    T* dgate = dgate_up.row<T>(r);
    T* dup = dgate + width;
    for_each_vector<Whole>(width, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
      hwy::Prefetch(gate + kAhead<T> + i);
      hwy::Prefetch(up + kAhead<T> + i);
      hwy::Prefetch(gradient + kAhead<T> + i);
      const F32 d = vector.load(gradient + i);
      const F32 g = at_least(vector.load(gate + i), kSigmoidBound);
      const F32 u = vector.load(up + i);
      const F32 s = fast_sigmoid<T>(g);
      const F32 silu = hn::Mul(g, s);
      // An infinite gate must not meet 1 - s = 0.
      const F32 finite = at_most(g, 80.0F);
      const F32 slope = hn::Mul(s, hn::MulAdd(finite, hn::Sub(set(1.0F), s), set(1.0F)));
      vector.store(hn::Mul(hn::Mul(d, u), slope), dgate + i);
      vector.store(hn::Mul(d, silu), dup + i);
    });
  }
}

void swiglu_range(const ConstTensorView& gate_up, const TensorView& y, std::int64_t begin, std::int64_t end) {
  const bool streamed = worth_streaming(y, y.columns());
  if (y.dtype() == DType::bf16) {
    streamed ? swiglu_rows<bf16, StreamedVector>(gate_up, y, begin, end)
             : swiglu_rows<bf16, WholeVector>(gate_up, y, begin, end);
  } else {
    streamed ? swiglu_rows<float, StreamedVector>(gate_up, y, begin, end)
             : swiglu_rows<float, WholeVector>(gate_up, y, begin, end);
  }
  hwy::FlushStream();
}

void swiglu_backward_range(const ConstTensorView& dy, const ConstTensorView& gate_up,
                           const TensorView& dgate_up, std::int64_t begin, std::int64_t end) {
  const bool streamed = dgate_up.data() != gate_up.data() && worth_streaming(dgate_up, dy.columns());
  if (dy.dtype() == DType::bf16) {
    streamed ? swiglu_backward_rows<bf16, StreamedVector>(dy, gate_up, dgate_up, begin, end)
             : swiglu_backward_rows<bf16, WholeVector>(dy, gate_up, dgate_up, begin, end);
  } else {
    streamed ? swiglu_backward_rows<float, StreamedVector>(dy, gate_up, dgate_up, begin, end)
             : swiglu_backward_rows<float, WholeVector>(dy, gate_up, dgate_up, begin, end);
  }
  hwy::FlushStream();
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels {

HWY_EXPORT(swiglu_range);
HWY_EXPORT(swiglu_backward_range);

namespace {

constexpr std::int64_t kGrain = 16;  // rows that are worth a thread

void require_pair(const ConstTensorView& y, const ConstTensorView& gate_up) {
  require_float("y", y);
  require_matrix("y", y);
  require_type("gate_up", gate_up, y.dtype());
  require_shape("gate_up", gate_up, {y.rows(), 2 * y.columns()});
}

}  // namespace

void swiglu(ConstTensorView gate_up, TensorView y) {
  require_pair(y, gate_up);
  parallel_for(y.rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(swiglu_range)(gate_up, y, begin, end);
  });
}

void swiglu_backward(ConstTensorView dy, ConstTensorView gate_up, TensorView dgate_up) {
  require_pair(dy, gate_up);
  require_type("dgate_up", dgate_up, dy.dtype());
  require_shape("dgate_up", dgate_up, gate_up.shape());
  parallel_for(dy.rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(swiglu_backward_range)(dy, gate_up, dgate_up, begin, end);
  });
}

}  // namespace expedite::kernels
#endif  // HWY_ONCE
