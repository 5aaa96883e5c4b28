#include "expedite/kernels/swiglu.h"

#include <cmath>
#include <cstdint>
#include <string_view>

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

HWY_INLINE float weight_of(const ConstTensorView& weights, std::int64_t r) {
  return present(weights) ? static_cast<const float*>(weights.data())[r * weights.row_stride()] : 1.0F;
}

template <typename T, typename Whole>
void swiglu_rows(const ConstTensorView& gate_up, const ConstTensorView& weights, const TensorView& y,
                 std::int64_t begin, std::int64_t end) {
  const std::int64_t width = y.columns();
  for (std::int64_t r = begin; r < end; ++r) {
    const T* gate = gate_up.row<T>(r);
    const T* up = gate + width;
    T* out = y.row<T>(r);
    const F32 weight = set(weight_of(weights, r));
    for_each_vector<Whole>(width, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
      hwy::Prefetch(gate + kAhead<T> + i);
      hwy::Prefetch(up + kAhead<T> + i);
      const F32 g = at_least(vector.load(gate + i), kSigmoidBound);
      const F32 activated = hn::Mul(hn::Mul(g, fast_sigmoid<T>(g)), vector.load(up + i));
      vector.store(hn::Mul(weight, activated), out + i);
    });
  }
}

// Returns the gradient of the row's weight. With s = sigmoid(gate): d silu / d gate = s + gate * s * (1 - s).
template <typename T, typename Whole>
HWY_INLINE float backward_row(const T* gradient, const T* gate, float row_weight, std::int64_t width,
                              T* dgate) {
  const T* up = gate + width;
  T* dup = dgate + width;
  const F32 weight = set(row_weight);
  return sum_over_vectors<Whole>(width, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    hwy::Prefetch(gate + kAhead<T> + i);
    hwy::Prefetch(up + kAhead<T> + i);
    hwy::Prefetch(gradient + kAhead<T> + i);
    const F32 unweighted = vector.load(gradient + i);
    const F32 d = hn::Mul(weight, unweighted);
    const F32 g = at_least(vector.load(gate + i), kSigmoidBound);
    const F32 u = vector.load(up + i);
    const F32 s = fast_sigmoid<T>(g);
    const F32 silu = hn::Mul(g, s);
    // An infinite gate must not meet 1 - s = 0.
    const F32 finite = at_most(g, 80.0F);
    const F32 slope = hn::Mul(s, hn::MulAdd(finite, hn::Sub(set(1.0F), s), set(1.0F)));
    vector.store(hn::Mul(hn::Mul(d, u), slope), dgate + i);
    vector.store(hn::Mul(d, silu), dup + i);
    return hn::Mul(unweighted, hn::Mul(silu, u));
  });
}

template <typename T, typename Whole>
void swiglu_backward_rows(const ConstTensorView& dy, const ConstTensorView& gate_up,
                          const ConstTensorView& weights, const TensorView& dgate_up,
                          const TensorView& dweights, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float dweight = backward_row<T, Whole>(dy.row<T>(r), gate_up.row<T>(r), weight_of(weights, r),
                                                 dy.columns(), dgate_up.row<T>(r));
    if (present(dweights)) {
      *dweights.row<float>(r) = dweight;
    }
  }
}

// Gate and up of the general activation, clamped. An infinite gate must not meet a sigmoid of zero.
struct Clamped {
  F32 gate;
  F32 up;  // offset added
  F32 sigmoid;
};

template <typename T>
HWY_INLINE Clamped clamp(F32 gate, F32 up, const GluOptions& options) {
  const F32 g = at_least(at_most(gate, options.limit), kSigmoidBound / options.alpha);
  const F32 u = at_least(at_most(up, options.limit), -options.limit);
  return {g, hn::Add(u, set(options.up_offset)), fast_sigmoid<T>(hn::Mul(set(options.alpha), g))};
}

template <typename T, typename Whole>
void glu_rows(const ConstTensorView& gate_up, const ConstTensorView& weights, const TensorView& y,
              const GluOptions& options, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = y.columns();
  for (std::int64_t r = begin; r < end; ++r) {
    const T* gate = gate_up.row<T>(r);
    const T* up = gate + width;
    T* out = y.row<T>(r);
    const F32 weight = set(weight_of(weights, r));
    for_each_vector<Whole>(width, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
      hwy::Prefetch(gate + kAhead<T> + i);
      hwy::Prefetch(up + kAhead<T> + i);
      const Clamped x = clamp<T>(vector.load(gate + i), vector.load(up + i), options);
      vector.store(hn::Mul(weight, hn::Mul(hn::Mul(x.gate, x.sigmoid), x.up)), out + i);
    });
  }
}

// Returns the gradient of the row's weight. With s = sigmoid(alpha gate): d (gate s) / d gate =
// s + alpha gate s (1 - s). NaN is not clamped: its gradient is NaN.
template <typename T, typename Whole>
HWY_INLINE float glu_backward_row(const T* gradient, const T* gate, float row_weight, std::int64_t width,
                                  GluOptions options, T* dgate) {
  const T* up = gate + width;
  T* dup = dgate + width;
  const F32 weight = set(row_weight);
  return sum_over_vectors<Whole>(width, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    hwy::Prefetch(gate + kAhead<T> + i);
    hwy::Prefetch(up + kAhead<T> + i);
    hwy::Prefetch(gradient + kAhead<T> + i);
    const F32 unweighted = vector.load(gradient + i);
    const F32 d = hn::Mul(weight, unweighted);
    const F32 raw_gate = vector.load(gate + i);
    const F32 raw_up = vector.load(up + i);
    const Clamped x = clamp<T>(raw_gate, raw_up, options);
    const F32 activated = hn::Mul(x.gate, x.sigmoid);
    // An infinite gate must not meet 1 - s = 0.
    const F32 finite = at_most(hn::Mul(set(options.alpha), x.gate), 80.0F);
    const F32 slope = hn::Mul(x.sigmoid, hn::MulAdd(finite, hn::Sub(set(1.0F), x.sigmoid), set(1.0F)));
    const auto gate_is_cut = hn::Gt(raw_gate, set(options.limit));
    const auto up_is_cut = hn::Gt(hn::Abs(raw_up), set(options.limit));
    vector.store(hn::IfThenZeroElse(gate_is_cut, hn::Mul(hn::Mul(d, x.up), slope)), dgate + i);
    vector.store(hn::IfThenZeroElse(up_is_cut, hn::Mul(d, activated)), dup + i);
    return hn::Mul(unweighted, hn::Mul(activated, x.up));
  });
}

template <typename T, typename Whole>
void glu_backward_rows(const ConstTensorView& dy, const ConstTensorView& gate_up,
                       const ConstTensorView& weights, const TensorView& dgate_up, const TensorView& dweights,
                       const GluOptions& options, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float dweight = glu_backward_row<T, Whole>(dy.row<T>(r), gate_up.row<T>(r), weight_of(weights, r),
                                                     dy.columns(), options, dgate_up.row<T>(r));
    if (present(dweights)) {
      *dweights.row<float>(r) = dweight;
    }
  }
}

void swiglu_range(const ConstTensorView& gate_up, const ConstTensorView& weights, const TensorView& y,
                  std::int64_t begin, std::int64_t end) {
  const bool streamed = worth_streaming(y, y.columns());
  if (y.dtype() == DType::bf16) {
    streamed ? swiglu_rows<bf16, StreamedVector>(gate_up, weights, y, begin, end)
             : swiglu_rows<bf16, WholeVector>(gate_up, weights, y, begin, end);
  } else {
    streamed ? swiglu_rows<float, StreamedVector>(gate_up, weights, y, begin, end)
             : swiglu_rows<float, WholeVector>(gate_up, weights, y, begin, end);
  }
  hwy::FlushStream();
}

void swiglu_backward_range(const ConstTensorView& dy, const ConstTensorView& gate_up,
                           const ConstTensorView& weights, const TensorView& dgate_up,
                           const TensorView& dweights, std::int64_t begin, std::int64_t end) {
  const bool streamed = dgate_up.data() != gate_up.data() && worth_streaming(dgate_up, dy.columns());
  if (dy.dtype() == DType::bf16) {
    streamed
        ? swiglu_backward_rows<bf16, StreamedVector>(dy, gate_up, weights, dgate_up, dweights, begin, end)
        : swiglu_backward_rows<bf16, WholeVector>(dy, gate_up, weights, dgate_up, dweights, begin, end);
  } else {
    streamed
        ? swiglu_backward_rows<float, StreamedVector>(dy, gate_up, weights, dgate_up, dweights, begin, end)
        : swiglu_backward_rows<float, WholeVector>(dy, gate_up, weights, dgate_up, dweights, begin, end);
  }
  hwy::FlushStream();
}

void glu_range(const ConstTensorView& gate_up, const ConstTensorView& weights, const TensorView& y,
               const GluOptions& options, std::int64_t begin, std::int64_t end) {
  const bool streamed = worth_streaming(y, y.columns());
  if (y.dtype() == DType::bf16) {
    streamed ? glu_rows<bf16, StreamedVector>(gate_up, weights, y, options, begin, end)
             : glu_rows<bf16, WholeVector>(gate_up, weights, y, options, begin, end);
  } else {
    streamed ? glu_rows<float, StreamedVector>(gate_up, weights, y, options, begin, end)
             : glu_rows<float, WholeVector>(gate_up, weights, y, options, begin, end);
  }
  hwy::FlushStream();
}

void glu_backward_range(const ConstTensorView& dy, const ConstTensorView& gate_up,
                        const ConstTensorView& weights, const TensorView& dgate_up,
                        const TensorView& dweights, const GluOptions& options, std::int64_t begin,
                        std::int64_t end) {
  const bool streamed = dgate_up.data() != gate_up.data() && worth_streaming(dgate_up, dy.columns());
  const auto run = [&](auto rows) { rows(dy, gate_up, weights, dgate_up, dweights, options, begin, end); };
  if (dy.dtype() == DType::bf16) {
    streamed ? run(glu_backward_rows<bf16, StreamedVector>) : run(glu_backward_rows<bf16, WholeVector>);
  } else {
    streamed ? run(glu_backward_rows<float, StreamedVector>) : run(glu_backward_rows<float, WholeVector>);
  }
  hwy::FlushStream();
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels {

HWY_EXPORT(swiglu_range);
HWY_EXPORT(swiglu_backward_range);
HWY_EXPORT(glu_range);
HWY_EXPORT(glu_backward_range);

namespace {

constexpr std::int64_t kGrain = 16;  // rows that are worth a thread

void require_pair(const ConstTensorView& y, const ConstTensorView& gate_up) {
  require_float("y", y);
  require_matrix("y", y);
  require_type("gate_up", gate_up, y.dtype());
  require_shape("gate_up", gate_up, {y.rows(), 2 * y.columns()});
}

void require_activation(const GluOptions& options) {
  require(options.alpha >= 1e-6F && std::isfinite(options.alpha),
          "the activation's alpha is {}, not a number from 1e-6 on", options.alpha);
  require(options.limit > 0.0F, "the activation's limit is {}, not above 0", options.limit);
  require(std::isfinite(options.up_offset), "the activation's up_offset is {}, not a finite number",
          options.up_offset);
}

void require_row_weights(std::string_view name, const ConstTensorView& weights, std::int64_t rows) {
  if (present(weights)) {
    require_type(name, weights, DType::f32);
    require_shape(name, weights, {rows});
  }
}

}  // namespace

void swiglu(ConstTensorView gate_up, ConstTensorView weights, TensorView y, const GluOptions& options) {
  require_pair(y, gate_up);
  require_row_weights("weights", weights, y.rows());
  require_activation(options);
  parallel_for(y.rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    if (options == GluOptions()) {
      HWY_DYNAMIC_DISPATCH(swiglu_range)(gate_up, weights, y, begin, end);
    } else {
      HWY_DYNAMIC_DISPATCH(glu_range)(gate_up, weights, y, options, begin, end);
    }
  });
}

void swiglu_backward(ConstTensorView dy, ConstTensorView gate_up, ConstTensorView weights,
                     TensorView dgate_up, TensorView dweights, const GluOptions& options) {
  require_pair(dy, gate_up);
  require_row_weights("weights", weights, dy.rows());
  require_type("dgate_up", dgate_up, dy.dtype());
  require_shape("dgate_up", dgate_up, gate_up.shape());
  require_row_weights("dweights", dweights, dy.rows());
  require_activation(options);
  parallel_for(dy.rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    if (options == GluOptions()) {
      HWY_DYNAMIC_DISPATCH(swiglu_backward_range)
      (dy, gate_up, weights, dgate_up, dweights, begin, end);
    } else {
      HWY_DYNAMIC_DISPATCH(glu_backward_range)
      (dy, gate_up, weights, dgate_up, dweights, options, begin, end);
    }
  });
}

}  // namespace expedite::kernels
#endif  // HWY_ONCE
