#include "expedite/kernels/permute.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "expedite/kernels/arguments.h"
#include "expedite/kernels/parallel.h"
#include "expedite/kernels/simd_targets.h"
#include "expedite/kernels/streaming.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expedite/kernels/permute.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "expedite/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace expedite::kernels::HWY_NAMESPACE {

// The rows of a gather lie anywhere, and the hardware sees a row's pattern only after some of its lines: the
// first lines of the next row are fetched while this one is read.
HWY_INLINE void prefetch_row(const void* row, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  constexpr std::int64_t kMostLines = 8;
  const auto* line = static_cast<const std::uint8_t*>(row);
  const std::uint8_t* end = line + std::min(bytes, kMostLines * kLine);
  for (; line < end; line += kLine) {
    hwy::Prefetch(line);
  }
}

// A loop of vectors: memcpy starts up slowly on rows of a few KiB.
template <bool kStreamed>
HWY_INLINE void copy_row(const std::uint8_t* from, std::uint8_t* to, std::int64_t bytes) {
  const hn::ScalableTag<std::uint8_t> tag;
  const auto width = static_cast<std::int64_t>(hn::Lanes(tag));
  std::int64_t i = 0;
  for (; i + width <= bytes; i += width) {
    const auto words = hn::LoadU(tag, from + i);
    if constexpr (kStreamed) {
      hn::Stream(words, tag, to + i);
    } else {
      hn::StoreU(words, tag, to + i);
    }
  }
  std::memcpy(to + i, from + i, static_cast<std::size_t>(bytes - i));
}

template <bool kStreamed>
void gather(const ConstTensorView& src, const ConstTensorView& index, const TensorView& dst,
            std::int64_t begin, std::int64_t end) {
  const std::int64_t size = size_of(src.dtype());
  const std::int64_t bytes = src.columns() * size;
  const auto* from = static_cast<const std::uint8_t*>(src.data());
  auto* to = static_cast<std::uint8_t*>(dst.data());
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t row = *index.row<std::int32_t>(i);
    const std::int64_t next = i + 1 < end ? *index.row<std::int32_t>(i + 1) : -1;
    if (next >= 0) {
      prefetch_row(from + next * src.row_stride() * size, bytes);
    }
    std::uint8_t* out = to + i * dst.row_stride() * size;
    if (row < 0) {
      std::memset(out, 0, static_cast<std::size_t>(bytes));
    } else {
      copy_row<kStreamed>(from + row * src.row_stride() * size, out, bytes);
    }
  }
}

void gather_range(const ConstTensorView& src, const ConstTensorView& index, const TensorView& dst,
                  std::int64_t begin, std::int64_t end) {
  if (worth_streaming(dst, dst.columns())) {
    gather<true>(src, index, dst, begin, end);
  } else {
    gather<false>(src, index, dst, begin, end);
  }
  hwy::FlushStream();
}

// One addend of a token: a row, and what it is multiplied by.
template <typename T>
struct Term {
  const T* row;
  float weight;
};

// out = (residual +) sum of weight * row, one vector after the other.
template <typename T, typename Vector>
HWY_INLINE void add_terms(const std::vector<Term<T>>& terms, const T* residual, std::int64_t column,
                          const Vector& vector, T* out) {
  F32 sum = residual == nullptr ? zero() : vector.load(residual + column);
  for (const Term<T>& term : terms) {
    sum = hn::MulAdd(set(term.weight), vector.load(term.row + column), sum);
  }
  vector.store(sum, out + column);
}

// The same for four vectors at once, so that additions wait for each other less.
template <typename T>
HWY_INLINE void add_terms_to_four(const std::vector<Term<T>>& terms, const T* residual, std::int64_t column,
                                  T* out) {
  const std::int64_t width = lanes();
  F32 sum0 = zero();
  F32 sum1 = zero();
  F32 sum2 = zero();
  F32 sum3 = zero();
  if (residual != nullptr) {
    sum0 = WholeVector::load(residual + column);
    sum1 = WholeVector::load(residual + column + width);
    sum2 = WholeVector::load(residual + column + 2 * width);
    sum3 = WholeVector::load(residual + column + 3 * width);
  }
  for (const Term<T>& term : terms) {
    const F32 weight = set(term.weight);
    const T* from = term.row + column;
    sum0 = hn::MulAdd(weight, WholeVector::load(from), sum0);
    sum1 = hn::MulAdd(weight, WholeVector::load(from + width), sum1);
    sum2 = hn::MulAdd(weight, WholeVector::load(from + 2 * width), sum2);
    sum3 = hn::MulAdd(weight, WholeVector::load(from + 3 * width), sum3);
  }
  WholeVector::store(sum0, out + column);
  WholeVector::store(sum1, out + column + width);
  WholeVector::store(sum2, out + column + 2 * width);
  WholeVector::store(sum3, out + column + 3 * width);
}

template <typename T>
void unpermute_tokens(const ConstTensorView& rows, const ConstTensorView& position,
                      const ConstTensorView& weights, const ConstTensorView& residual, const TensorView& dst,
                      std::int64_t begin, std::int64_t end) {
  const std::int64_t k = position.columns();
  const std::int64_t columns = dst.columns();
  const std::int64_t step = 4 * lanes();
  std::vector<Term<T>> terms;
  terms.reserve(static_cast<std::size_t>(k));
  for (std::int64_t t = begin; t < end; ++t) {
    const std::int32_t* from = position.row<std::int32_t>(t);
    terms.clear();
    for (std::int64_t j = 0; j < k; ++j) {
      if (from[j] >= 0) {
        terms.push_back({rows.row<T>(from[j]), present(weights) ? weights.row<float>(t)[j] : 1.0F});
      }
    }
    for (std::int64_t j = 0; t + 1 < end && j < k; ++j) {
      const std::int32_t next = position.row<std::int32_t>(t + 1)[j];
      if (next >= 0) {
        prefetch_row(rows.row<T>(next), columns * static_cast<std::int64_t>(sizeof(T)));
      }
    }
    const T* add = present(residual) ? residual.row<T>(t) : nullptr;
    T* out = dst.row<T>(t);
    std::int64_t column = 0;
    for (; column + step <= columns; column += step) {
      add_terms_to_four(terms, add, column, out);
    }
    for_each_vector(columns - column, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
      add_terms(terms, add, column + i, vector, out);
    });
  }
}

void unpermute_range(const ConstTensorView& rows, const ConstTensorView& position,
                     const ConstTensorView& weights, const ConstTensorView& residual, const TensorView& dst,
                     std::int64_t begin, std::int64_t end) {
  if (dst.dtype() == DType::bf16) {
    unpermute_tokens<bf16>(rows, position, weights, residual, dst, begin, end);
  } else {
    unpermute_tokens<float>(rows, position, weights, residual, dst, begin, end);
  }
}

// drow = weight * dy; returns dy · row.
template <typename T, typename Whole>
float scatter_row(const T* dy, const T* row, float weight, std::int64_t columns, T* drow) {
  const F32 factor = set(weight);
  return sum_over_vectors<Whole>(columns, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    const F32 gradient = vector.load(dy + i);
    vector.store(hn::Mul(factor, gradient), drow + i);
    return hn::Mul(gradient, vector.load(row + i));
  });
}

template <typename T, typename Whole>
void unpermute_backward_tokens(const ConstTensorView& dy, const ConstTensorView& rows,
                               const ConstTensorView& position, const ConstTensorView& weights,
                               const TensorView& drows, const TensorView& dweights, std::int64_t begin,
                               std::int64_t end) {
  const std::int64_t k = position.columns();
  for (std::int64_t t = begin; t < end; ++t) {
    const std::int32_t* to = position.row<std::int32_t>(t);
    for (std::int64_t j = 0; j < k; ++j) {
      float dot = 0.0F;
      if (to[j] >= 0) {
        const float weight = present(weights) ? weights.row<float>(t)[j] : 1.0F;
        dot = scatter_row<T, Whole>(dy.row<T>(t), rows.row<T>(to[j]), weight, dy.columns(),
                                    drows.row<T>(to[j]));
      }
      if (present(dweights)) {
        dweights.row<float>(t)[j] = dot;
      }
    }
  }
}

void unpermute_backward_range(const ConstTensorView& dy, const ConstTensorView& rows,
                              const ConstTensorView& position, const ConstTensorView& weights,
                              const TensorView& drows, const TensorView& dweights, std::int64_t begin,
                              std::int64_t end) {
  const bool streamed = drows.data() != rows.data() && worth_streaming(drows, drows.columns());
  if (dy.dtype() == DType::bf16) {
    streamed ? unpermute_backward_tokens<bf16, StreamedVector>(dy, rows, position, weights, drows, dweights,
                                                               begin, end)
             : unpermute_backward_tokens<bf16, WholeVector>(dy, rows, position, weights, drows, dweights,
                                                            begin, end);
  } else {
    streamed ? unpermute_backward_tokens<float, StreamedVector>(dy, rows, position, weights, drows, dweights,
                                                                begin, end)
             : unpermute_backward_tokens<float, WholeVector>(dy, rows, position, weights, drows, dweights,
                                                             begin, end);
  }
  hwy::FlushStream();
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels {

HWY_EXPORT(gather_range);
HWY_EXPORT(unpermute_range);
HWY_EXPORT(unpermute_backward_range);

namespace {

constexpr std::int64_t kGrain = 32;  // rows that are worth a thread

// A wrong position would read or write foreign memory.
void require_rows(const ConstTensorView& position, std::int64_t rows) {
  require_type("the row positions", position, DType::i32);
  for (std::int64_t t = 0; t < position.rows(); ++t) {
    const std::int32_t* entries = position.row<std::int32_t>(t);
    for (std::int64_t j = 0; j < position.columns(); ++j) {
      require(entries[j] < rows, "row position [{}, {}] is {}, but there are {} rows", t, j, entries[j],
              rows);
    }
  }
}

void require_weights(const ConstTensorView& weights, const ConstTensorView& position) {
  if (present(weights)) {
    require_type("weights", weights, DType::f32);
    require_shape("weights", weights, position.shape());
  }
}

// rows[R, H] at positions [T, k] make tokens [T, H].
void require_plan(const ConstTensorView& rows, const ConstTensorView& position,
                  const ConstTensorView& tokens) {
  require_matrix("the row positions", position);
  if (position.rows() != tokens.rows() || rows.columns() != tokens.columns()) [[unlikely]] {
    fail("rows {} at positions {} do not make tokens {}", to_string(rows.shape()),
         to_string(position.shape()), to_string(tokens.shape()));
  }
  require_rows(position, rows.rows());
}

}  // namespace

void gather_rows(ConstTensorView src, ConstTensorView index, TensorView dst) {
  require_type("dst", dst, src.dtype());
  require(dst.columns() == src.columns(), "rows of {} columns do not fit rows of {}", src.columns(),
          dst.columns());
  require_shape("index", index, {dst.rows()});
  require_rows(index, src.rows());
  if (dst.empty()) {
    return;
  }
  parallel_for(dst.rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(gather_range)(src, index, dst, begin, end);
  });
}

void unpermute(ConstTensorView rows, ConstTensorView position, ConstTensorView weights,
               ConstTensorView residual, TensorView dst) {
  require_float("dst", dst);
  require_type("rows", rows, dst.dtype());
  require_plan(rows, position, dst);
  require_weights(weights, position);
  if (present(residual)) {
    require_type("residual", residual, dst.dtype());
    require_shape("residual", residual, dst.shape());
  }
  parallel_for(dst.rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(unpermute_range)(rows, position, weights, residual, dst, begin, end);
  });
}

void unpermute_backward(ConstTensorView dy, ConstTensorView rows, ConstTensorView position,
                        ConstTensorView weights, TensorView drows, TensorView dweights) {
  require_float("dy", dy);
  require_type("rows", rows, dy.dtype());
  require_type("drows", drows, dy.dtype());
  require_shape("drows", drows, rows.shape());
  require_plan(rows, position, dy);
  require_weights(weights, position);
  require_weights(dweights, position);
  parallel_for(dy.rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(unpermute_backward_range)
    (dy, rows, position, weights, drows, dweights, begin, end);
  });
}

}  // namespace expedite::kernels
#endif  // HWY_ONCE
