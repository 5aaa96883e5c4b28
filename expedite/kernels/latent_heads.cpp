#include "expedite/kernels/latent_heads.h"

#include <algorithm>
#include <vector>

#include "expedite/kernels/parallel.h"

namespace expedite::kernels {
namespace {

constexpr std::int64_t kTokensAtOnce = 8;

/// Sizes of a head, from the matrices that have all heads side by side.
struct HeadSizes {
  std::int64_t own = 0;    // Dn
  std::int64_t rope = 0;   // Dr
  std::int64_t value = 0;  // Dv

  HeadSizes(ConstTensorView expanded, ConstTensorView rope_key, std::int64_t heads, ConstTensorView key,
            ConstTensorView values) {
    const std::int64_t tokens = expanded.rows();
    const DType dtype = expanded.dtype();
    rope = rope_key.columns();
    value = values.columns() / heads;
    own = key.columns() / heads - rope;
    require(rope_key.rows() == tokens && key.rows() == tokens && values.rows() == tokens &&
                key.columns() == heads * (own + rope) && values.columns() == heads * value &&
                expanded.columns() == heads * (own + value),
            "heads of latent attention: {} expanded, {} rope key, {} key and {} value do not fit {} heads",
            to_string(expanded.shape()), to_string(rope_key.shape()), to_string(key.shape()),
            to_string(values.shape()), heads);
    require(rope_key.dtype() == dtype && key.dtype() == dtype && values.dtype() == dtype,
            "heads of latent attention must have one type");
  }
};

template <typename T>
void assemble(const HeadSizes& size, ConstTensorView expanded, ConstTensorView rope_key, std::int64_t heads,
              TensorView key, TensorView value) {
  parallel_for(expanded.rows(), kTokensAtOnce, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const T* from = expanded.as<T>() + t * expanded.row_stride();
      const T* rope = rope_key.as<T>() + t * rope_key.row_stride();
      T* k = key.as<T>() + t * key.row_stride();
      T* v = value.as<T>() + t * value.row_stride();
      for (std::int64_t h = 0; h < heads; ++h) {
        k = std::copy_n(from, size.own, k);
        k = std::copy_n(rope, size.rope, k);
        v = std::copy_n(from + size.own, size.value, v);
        from += size.own + size.value;
      }
    }
  });
}

template <typename T>
void assemble_backward(const HeadSizes& size, ConstTensorView dkey, ConstTensorView dvalue,
                       std::int64_t heads, TensorView dexpanded, TensorView drope_key) {
  parallel_for(dkey.rows(), kTokensAtOnce, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> sum(static_cast<std::size_t>(size.rope));
    for (std::int64_t t = begin; t < end; ++t) {
      const T* k = dkey.as<T>() + t * dkey.row_stride();
      const T* v = dvalue.as<T>() + t * dvalue.row_stride();
      T* to = dexpanded.as<T>() + t * dexpanded.row_stride();
      std::ranges::fill(sum, 0.0F);
      for (std::int64_t h = 0; h < heads; ++h) {
        to = std::copy_n(k, size.own, to);
        to = std::copy_n(v, size.value, to);
        for (std::int64_t i = 0; i < size.rope; ++i) {
          sum[static_cast<std::size_t>(i)] += static_cast<float>(k[size.own + i]);
        }
        k += size.own + size.rope;
        v += size.value;
      }
      std::ranges::transform(sum, drope_key.as<T>() + t * drope_key.row_stride(),
                             [](float x) { return T(x); });
    }
  });
}

}  // namespace

void assemble_heads(ConstTensorView expanded, ConstTensorView rope_key, std::int64_t heads, TensorView key,
                    TensorView value) {
  const HeadSizes size(expanded, rope_key, heads, key, value);
  if (expanded.dtype() == DType::f32) {
    assemble<float>(size, expanded, rope_key, heads, key, value);
  } else {
    assemble<bf16>(size, expanded, rope_key, heads, key, value);
  }
}

void assemble_heads_backward(ConstTensorView dkey, ConstTensorView dvalue, std::int64_t heads,
                             TensorView dexpanded, TensorView drope_key) {
  const HeadSizes size(dexpanded, drope_key, heads, dkey, dvalue);
  if (dkey.dtype() == DType::f32) {
    assemble_backward<float>(size, dkey, dvalue, heads, dexpanded, drope_key);
  } else {
    assemble_backward<bf16>(size, dkey, dvalue, heads, dexpanded, drope_key);
  }
}

}  // namespace expedite::kernels
