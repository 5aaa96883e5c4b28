#include "expedite/kernels/elementwise.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "expedite/kernels/arguments.h"
#include "expedite/kernels/block_sum.h"
#include "expedite/kernels/parallel.h"
#include "expedite/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expedite/kernels/elementwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "expedite/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace expedite::kernels::HWY_NAMESPACE {

// Rounding wants quiet NaNs, and no arithmetic has made them so here.
HWY_INLINE F32 quiet(F32 x) {
  const hn::RebindToUnsigned<F32Tag> bits;
  const auto quieted = hn::Or(hn::BitCast(bits, x), hn::Set(bits, 0x00400000));
  return hn::IfThenElse(hn::IsNaN(x), hn::BitCast(F32Tag(), quieted), x);
}

template <typename From, typename To>
void convert_row(const From* from, To* to, std::int64_t count) {
  for_each_vector<ExactVector>(count, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    vector.store(quiet(vector.load(from + i)), to + i);
  });
}

void convert_to_bf16(const float* from, bf16* to, std::int64_t count) {
  convert_row(from, to, count);
}
void convert_to_f32(const bf16* from, float* to, std::int64_t count) {
  convert_row(from, to, count);
}
void add_f32_f32(const float* from, float* to, std::int64_t count) {
  accumulate_row(from, to, count);
}
void add_f32_bf16(const float* from, bf16* to, std::int64_t count) {
  accumulate_row(from, to, count);
}
void add_bf16_f32(const bf16* from, float* to, std::int64_t count) {
  accumulate_row(from, to, count);
}
void add_bf16_bf16(const bf16* from, bf16* to, std::int64_t count) {
  accumulate_row(from, to, count);
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels {

HWY_EXPORT(convert_to_bf16);
HWY_EXPORT(convert_to_f32);
HWY_EXPORT(add_f32_f32);
HWY_EXPORT(add_f32_bf16);
HWY_EXPORT(add_bf16_f32);
HWY_EXPORT(add_bf16_bf16);

namespace {

constexpr std::int64_t kGrain = 16384;  // elements that are worth a thread

// Calls body(row, column, count) for stretches that lie in one row and together cover `x`. A tensor without
// gaps counts as one long row, so that a vector is split over threads like a matrix.
template <typename Body>
void for_each_stretch(const ConstTensorView& x, bool one_row, const Body& body) {
  const std::int64_t columns = one_row ? x.elements() : x.columns();
  parallel_for(x.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t row = at / columns;
      const std::int64_t column = at % columns;
      const std::int64_t count = std::min(columns - column, end - at);
      body(row, column, count);
      at += count;
    }
  });
}

// dst += src for `count` elements.
template <typename From, typename To>
void add_elements(const From* from, To* to, std::int64_t count) {
  if constexpr (sizeof(From) == sizeof(float) && sizeof(To) == sizeof(float)) {
    HWY_DYNAMIC_DISPATCH(add_f32_f32)(from, to, count);
  } else if constexpr (sizeof(From) == sizeof(float)) {
    HWY_DYNAMIC_DISPATCH(add_f32_bf16)(from, to, count);
  } else if constexpr (sizeof(To) == sizeof(float)) {
    HWY_DYNAMIC_DISPATCH(add_bf16_f32)(from, to, count);
  } else {
    HWY_DYNAMIC_DISPATCH(add_bf16_bf16)(from, to, count);
  }
}

template <typename From, typename To>
void add_typed(const ConstTensorView& src, const TensorView& dst) {
  for_each_stretch(dst, src.contiguous() && dst.contiguous(),
                   [&](std::int64_t row, std::int64_t column, std::int64_t count) {
                     add_elements(src.row<From>(row) + column, dst.row<To>(row) + column, count);
                   });
}

template <typename T>
void bias_backward_rows(const ConstTensorView& dy, std::int64_t begin, std::int64_t end,
                        std::span<float> dbias) {
  for (std::int64_t r = begin; r < end; ++r) {
    add_elements(dy.row<T>(r), dbias.data(), dy.columns());
  }
}

}  // namespace

void fill_zero(TensorView x) {
  if (x.empty()) {
    return;
  }
  const std::int64_t size = size_of(x.dtype());
  auto* bytes = static_cast<std::byte*>(x.data());
  for_each_stretch(x, x.contiguous(), [&](std::int64_t row, std::int64_t column, std::int64_t count) {
    std::memset(bytes + (row * x.row_stride() + column) * size, 0, static_cast<std::size_t>(count * size));
  });
}

void convert(ConstTensorView src, TensorView dst) {
  require_shape("dst", dst, src.shape());
  if (src.empty()) {
    return;
  }
  const bool one_row = src.contiguous() && dst.contiguous();
  if (src.dtype() == dst.dtype()) {
    const std::int64_t size = size_of(src.dtype());
    const auto* from = static_cast<const std::byte*>(src.data());
    auto* to = static_cast<std::byte*>(dst.data());
    for_each_stretch(dst, one_row, [&](std::int64_t row, std::int64_t column, std::int64_t count) {
      std::memcpy(to + (row * dst.row_stride() + column) * size,
                  from + (row * src.row_stride() + column) * size, static_cast<std::size_t>(count * size));
    });
    return;
  }
  require_float("src", src);
  require_float("dst", dst);
  for_each_stretch(dst, one_row, [&](std::int64_t row, std::int64_t column, std::int64_t count) {
    if (dst.dtype() == DType::bf16) {
      HWY_DYNAMIC_DISPATCH(convert_to_bf16)
      (src.row<float>(row) + column, dst.row<bf16>(row) + column, count);
    } else {
      HWY_DYNAMIC_DISPATCH(convert_to_f32)
      (src.row<bf16>(row) + column, dst.row<float>(row) + column, count);
    }
  });
}

void add(ConstTensorView src, TensorView dst) {
  require_float("src", src);
  require_float("dst", dst);
  require_shape("dst", dst, src.shape());
  if (src.dtype() == DType::f32) {
    if (dst.dtype() == DType::f32) {
      add_typed<float, float>(src, dst);
    } else {
      add_typed<float, bf16>(src, dst);
    }
  } else if (dst.dtype() == DType::f32) {
    add_typed<bf16, float>(src, dst);
  } else {
    add_typed<bf16, bf16>(src, dst);
  }
}

void add_bias(ConstTensorView bias, TensorView x) {
  require_float("x", x);
  require_matrix("x", x);
  require_type("bias", bias, x.dtype());
  require_shape("bias", bias, {x.columns()});
  for_each_stretch(x, false, [&](std::int64_t row, std::int64_t column, std::int64_t count) {
    if (x.dtype() == DType::bf16) {
      add_elements(bias.as<bf16>() + column, x.row<bf16>(row) + column, count);
    } else {
      add_elements(bias.as<float>() + column, x.row<float>(row) + column, count);
    }
  });
}

void bias_backward(ConstTensorView dy, TensorView dbias) {
  require_float("dy", dy);
  require_matrix("dy", dy);
  require_type("dbias", dbias, DType::f32);
  require_shape("dbias", dbias, {dy.columns()});
  add_block_sums(dy.rows(), dbias.span<float>(),
                 [&](std::int64_t begin, std::int64_t end, std::span<float> partial) {
                   if (dy.dtype() == DType::bf16) {
                     bias_backward_rows<bf16>(dy, begin, end, partial);
                   } else {
                     bias_backward_rows<float>(dy, begin, end, partial);
                   }
                 });
}

}  // namespace expedite::kernels
#endif  // HWY_ONCE
