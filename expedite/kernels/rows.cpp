#include "expedite/kernels/rows.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "expedite/kernels/arguments.h"
#include "expedite/kernels/parallel.h"
#include "expedite/kernels/simd_targets.h"
#include "expedite/kernels/streaming.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expedite/kernels/rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "expedite/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace expedite::kernels::HWY_NAMESPACE {

// Where a row lies; null for "no row". `size`: bytes of an element.
HWY_INLINE const void* find_row(std::span<const ConstTensorView> sources, RowRef ref, std::int64_t size) {
  if (ref.source < 0) {
    return nullptr;
  }
  const ConstTensorView& source = sources[static_cast<std::size_t>(ref.source)];
  return static_cast<const std::uint8_t*>(source.data()) + ref.row * source.row_stride() * size;
}

// A loop of vectors: memcpy starts up slowly on rows of a few KiB. Rows lie anywhere, and the hardware sees a
// row's pattern only after some of its lines: those of the row to be read next are fetched meanwhile.
template <bool kStreamed>
HWY_INLINE void copy_row(const void* from_row, const void* next_row, void* to_row, std::int64_t bytes) {
  const auto* from = static_cast<const std::uint8_t*>(from_row);
  const auto* next = static_cast<const std::uint8_t*>(next_row);
  auto* to = static_cast<std::uint8_t*>(to_row);
  const hn::ScalableTag<std::uint8_t> tag;
  const auto width = static_cast<std::int64_t>(hn::Lanes(tag));
  std::int64_t i = 0;
  for (; i + width <= bytes; i += width) {
    hwy::Prefetch(next + i);
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
void gather(std::span<const ConstTensorView> sources, std::span<const RowRef> refs, const TensorView& dst,
            std::int64_t begin, std::int64_t end) {
  const std::int64_t size = size_of(dst.dtype());
  const std::int64_t bytes = dst.columns() * size;
  const void* next = find_row(sources, refs[static_cast<std::size_t>(begin)], size);
  for (std::int64_t i = begin; i < end; ++i) {
    const void* from = next;
    next = i + 1 < end ? find_row(sources, refs[static_cast<std::size_t>(i + 1)], size) : nullptr;
    void* to = static_cast<std::uint8_t*>(dst.data()) + i * dst.row_stride() * size;
    if (from == nullptr) {
      std::memset(to, 0, static_cast<std::size_t>(bytes));
    } else {
      copy_row<kStreamed>(from, next == nullptr ? from : next, to, bytes);
    }
  }
}

void gather_range(std::span<const ConstTensorView> sources, std::span<const RowRef> refs,
                  const TensorView& dst, std::int64_t begin, std::int64_t end) {
  if (worth_streaming(dst, dst.columns())) {
    gather<true>(sources, refs, dst, begin, end);
  } else {
    gather<false>(sources, refs, dst, begin, end);
  }
  hwy::FlushStream();
}

// The sum of at least one row, one vector after the other.
template <typename T, typename Vector>
HWY_INLINE void add_vector(std::span<const T* const> rows, std::int64_t column, const Vector& vector,
                           T* out) {
  F32 sum = vector.load(rows[0] + column);
  for (const T* row : rows.subspan(1)) {
    sum = hn::Add(sum, vector.load(row + column));
  }
  vector.store(sum, out + column);
}

// The same for four vectors at once, so that additions wait for each other less.
template <typename T, typename Whole>
HWY_INLINE void add_four_vectors(std::span<const T* const> rows, std::int64_t column, T* out) {
  const std::int64_t width = lanes();
  F32 sum0 = Whole::load(rows[0] + column);
  F32 sum1 = Whole::load(rows[0] + column + width);
  F32 sum2 = Whole::load(rows[0] + column + 2 * width);
  F32 sum3 = Whole::load(rows[0] + column + 3 * width);
  for (const T* row : rows.subspan(1)) {
    const T* from = row + column;
    sum0 = hn::Add(sum0, Whole::load(from));
    sum1 = hn::Add(sum1, Whole::load(from + width));
    sum2 = hn::Add(sum2, Whole::load(from + 2 * width));
    sum3 = hn::Add(sum3, Whole::load(from + 3 * width));
  }
  Whole::store(sum0, out + column);
  Whole::store(sum1, out + column + width);
  Whole::store(sum2, out + column + 2 * width);
  Whole::store(sum3, out + column + 3 * width);
}

// Fetches the rows of the next sum while it makes this one, as copy_row does.
template <typename T, typename Whole>
HWY_INLINE void add_rows(std::span<const T* const> rows, std::span<const T* const> next, std::int64_t columns,
                         T* out) {
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t step = 4 * lanes();
  std::int64_t column = 0;
  for (; column + step <= columns; column += step) {
    for (const T* row : next) {
      for (std::int64_t line = 0; line < step; line += kLine) {
        hwy::Prefetch(row + column + line);
      }
    }
    add_four_vectors<T, Whole>(rows, column, out);
  }
  for_each_vector<Whole>(columns - column, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    add_vector(rows, column + i, vector, out);
  });
}

// The addends of row i of a sum, in order.
template <typename T>
void collect(std::span<const ConstTensorView> sources, std::span<const RowRef> refs,
             const ConstTensorView& residual, std::int64_t i, std::size_t width,
             std::vector<const T*>& addends) {
  addends.clear();
  if (present(residual)) {
    addends.push_back(residual.row<T>(i));
  }
  for (const RowRef ref : refs.subspan(static_cast<std::size_t>(i) * width, width)) {
    if (const void* row = find_row(sources, ref, sizeof(T)); row != nullptr) {
      addends.push_back(static_cast<const T*>(row));
    }
  }
}

template <typename T, typename Whole>
void sum(std::span<const ConstTensorView> sources, std::span<const RowRef> refs,
         const ConstTensorView& residual, const TensorView& dst, std::int64_t begin, std::int64_t end) {
  constexpr bool kStreamed = std::is_same_v<Whole, StreamedVector>;
  const std::size_t width = refs.size() / static_cast<std::size_t>(dst.rows());
  const std::int64_t bytes = dst.columns() * static_cast<std::int64_t>(sizeof(T));
  std::vector<const T*> addends;
  std::vector<const T*> next;
  collect(sources, refs, residual, begin, width, next);
  for (std::int64_t i = begin; i < end; ++i) {
    addends.swap(next);
    next.clear();
    if (i + 1 < end) {
      collect(sources, refs, residual, i + 1, width, next);
    }
    T* out = dst.row<T>(i);
    if (addends.empty()) {
      std::memset(static_cast<void*>(out), 0, static_cast<std::size_t>(bytes));
    } else if (addends.size() > 1) {
      add_rows<T, Whole>(addends, next, dst.columns(), out);
    } else if (addends.front() != out) {
      copy_row<kStreamed>(addends.front(), next.empty() ? addends.front() : next.front(), out, bytes);
    }
  }
}

void sum_range(std::span<const ConstTensorView> sources, std::span<const RowRef> refs,
               const ConstTensorView& residual, const TensorView& dst, std::int64_t begin, std::int64_t end) {
  const bool streamed = dst.data() != residual.data() && worth_streaming(dst, dst.columns());
  if (dst.dtype() == DType::bf16) {
    streamed ? sum<bf16, StreamedVector>(sources, refs, residual, dst, begin, end)
             : sum<bf16, WholeVector>(sources, refs, residual, dst, begin, end);
  } else {
    streamed ? sum<float, StreamedVector>(sources, refs, residual, dst, begin, end)
             : sum<float, WholeVector>(sources, refs, residual, dst, begin, end);
  }
  hwy::FlushStream();
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels {

HWY_EXPORT(gather_range);
HWY_EXPORT(sum_range);

namespace {

/// Rows that are worth a thread.
std::int64_t grain_of(const TensorView& dst) {
  constexpr std::int64_t kGrainBytes = std::int64_t{64} << 10;
  return std::max<std::int64_t>(1, kGrainBytes / (dst.columns() * size_of(dst.dtype())));
}

void require_sources(std::span<const ConstTensorView> sources, const TensorView& dst) {
  for (const ConstTensorView& source : sources) {
    require_type("a source", source, dst.dtype());
    require(source.columns() == dst.columns(), "rows of {} columns do not fit rows of {}", source.columns(),
            dst.columns());
  }
}

/// A wrong reference would read foreign memory.
void require_refs(std::span<const ConstTensorView> sources, std::span<const RowRef> refs) {
  const std::int64_t count = std::ssize(sources);
  for (std::size_t i = 0; i < refs.size(); ++i) {
    const RowRef ref = refs[i];
    if (ref.source == -1) {
      continue;
    }
    require(ref.source >= 0 && ref.source < count, "row reference {} names source {} of {}", i, ref.source,
            count);
    const std::int64_t rows = sources[static_cast<std::size_t>(ref.source)].rows();
    require(ref.row >= 0 && ref.row < rows, "row reference {} names row {} of source {}, which has {}", i,
            ref.row, ref.source, rows);
  }
}

}  // namespace

void gather_rows(std::span<const ConstTensorView> sources, std::span<const RowRef> refs, TensorView dst) {
  require_sources(sources, dst);
  require(std::ssize(refs) == dst.rows(), "{} row references do not fill {} rows", refs.size(), dst.rows());
  require_refs(sources, refs);
  if (dst.empty()) {
    return;
  }
  parallel_for(dst.rows(), grain_of(dst), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(gather_range)(sources, refs, dst, begin, end);
  });
}

void sum_rows(std::span<const ConstTensorView> sources, std::span<const RowRef> refs,
              ConstTensorView residual, TensorView dst) {
  require_float("dst", dst);
  require_sources(sources, dst);
  require(dst.rows() == 0 ? refs.empty() : std::ssize(refs) % dst.rows() == 0,
          "{} row references cannot be shared evenly by {} rows", refs.size(), dst.rows());
  if (present(residual)) {
    require_type("residual", residual, dst.dtype());
    require_shape("residual", residual, dst.shape());
  }
  require_refs(sources, refs);
  if (dst.empty()) {
    return;
  }
  parallel_for(dst.rows(), grain_of(dst), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(sum_range)(sources, refs, residual, dst, begin, end);
  });
}

}  // namespace expedite::kernels
#endif  // HWY_ONCE
