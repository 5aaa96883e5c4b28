// Copies of rows in the orders in which attention's products read them, and results back to rows.
// Compiled once per CPU generation by Highway: include only from a file that uses hwy/foreach_target.h.

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "expedite/kernels/attention_tiles-inl.h"
#include "expedite/tensor/dtype.h"

#if defined(EXPEDITE_KERNELS_ATTENTION_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPEDITE_KERNELS_ATTENTION_PACK_INL_H_
#undef EXPEDITE_KERNELS_ATTENTION_PACK_INL_H_
#else
#define EXPEDITE_KERNELS_ATTENTION_PACK_INL_H_
#endif

EXPEDITE_ATTENTION_BEFORE_NAMESPACE();
namespace expedite::kernels::attention {
namespace HWY_NAMESPACE {

/// A strided matrix of a caller's tensor: one head's columns.
template <typename T>
struct Rows {
  T* data;
  std::int64_t stride;
  [[nodiscard]] T* operator[](std::int64_t row) const { return data + row * stride; }
};

HWY_INLINE FloatVector load_floats(const float* from) {
  return hn::LoadU(Floats(), from);
}
HWY_INLINE FloatVector load_floats(const bf16* from) {
  const hn::RebindToUnsigned<Floats> words;
  const hn::Rebind<std::uint16_t, Floats> halves;
  const auto half = hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(words, half)));
}

/// Copies one row. Rows are a few cache lines: vectors in line beat a call.
template <typename T, typename Packed>
void load_row(const T* from, std::int64_t columns, Packed* to, std::int64_t padded_columns) {
  std::int64_t i = 0;
  if constexpr (std::is_same_v<T, Packed>) {
    using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
    const hn::ScalableTag<Word> words;
    constexpr std::int64_t kStep = hn::MaxLanes(words);
    for (; i + kStep <= columns; i += kStep) {
      hn::StoreU(hn::LoadU(words, reinterpret_cast<const Word*>(from + i)), words,
                 reinterpret_cast<Word*>(to + i));
    }
  } else {
    for (; i + kLanes <= columns; i += kLanes) {
      Packed* target = to + i;
      hn::StoreU(load_floats(from + i), Floats(), target);
    }
  }
  for (; i < columns; ++i) {
    to[i] = static_cast<Packed>(from[i]);
  }
  for (; i < padded_columns; ++i) {
    to[i] = Packed{};
  }
}

/// Copies `count` rows of `columns` elements to rows of `to_stride`; what lies between, and rows up to
/// `padded_count`, becomes zero.
template <typename T, typename Packed>
void load_rows(Rows<const T> from, std::int64_t count, std::int64_t columns, Packed* to,
               std::int64_t to_stride, std::int64_t padded_count) {
  for (std::int64_t row = 0; row < count; ++row) {
    load_row(from[row], columns, to + row * to_stride, to_stride);
  }
  std::fill(to + count * to_stride, to + padded_count * to_stride, Packed{});
}

/// The sum of products of two rows of `count` elements.
template <typename T>
float dot(const T* a, const T* b, std::int64_t count) {
  FloatVector sums = hn::Zero(Floats());
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    sums = hn::MulAdd(load_floats(a + i), load_floats(b + i), sums);
  }
  float sum = hn::GetLane(hn::SumOfLanes(Floats(), sums));
  for (; i < count; ++i) {
    sum += static_cast<float>(a[i]) * static_cast<float>(b[i]);
  }
  return sum;
}

/// Rounds to nearest even, as bf16's constructor does.
HWY_INLINE void store_floats(FloatVector values, bf16* to) {
  const hn::RebindToUnsigned<Floats> words;
  const hn::RebindToSigned<Floats> signed_words;
  const hn::Rebind<std::uint16_t, Floats> halves;
  const auto word = hn::BitCast(words, values);
  const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(words, 1U));
  const auto rounded = hn::ShiftRight<16>(word + odd + hn::Set(words, 0x7FFFU));
  const auto quiet_nan = hn::Or(hn::ShiftRight<16>(word), hn::Set(words, 0x40U));
  const auto result = hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(values)), quiet_nan, rounded);
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(signed_words, result)), halves,
             reinterpret_cast<std::uint16_t*>(to));
}

/// Writes one row of fp32 sums, times `scale`, in the caller's type; touches `columns` elements only.
template <typename Math, typename T>
void store_row(const float* from, std::int64_t columns, float scale, T* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= columns; i += kLanes) {
    const FloatVector values = hn::LoadU(Floats(), from + i) * hn::Set(Floats(), scale);
    if constexpr (std::is_same_v<T, typename Math::Packed>) {
      Math::store(values, to + i);
    } else {
      store_floats(values, to + i);
    }
  }
  for (; i < columns; ++i) {
    to[i] = T(from[i] * scale);
  }
}

/// to[column][row] = from[row][column] for 32-bit words, given as words, floats or pairs of halves. Rows and
/// columns are multiples of four; strides in words.
inline void transpose_words(const void* from, std::int64_t from_stride, std::int64_t rows,
                            std::int64_t columns, void* to, std::int64_t to_stride) {
  constexpr std::int64_t kWord = 4;
  const auto* from_bytes = static_cast<const std::byte*>(from);
  auto* to_bytes = static_cast<std::byte*>(to);
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      std::memcpy(to_bytes + (column * to_stride + row) * kWord,
                  from_bytes + (row * from_stride + column) * kWord, kWord);
    }
  }
#else
  const hn::Full128<std::uint32_t> d;
  const hn::Full128<std::uint64_t> d64;
  const auto load = [&](std::int64_t row, std::int64_t column) HWY_ATTR {
    return hn::LoadU(
        d, reinterpret_cast<const std::uint32_t*>(from_bytes + (row * from_stride + column) * kWord));
  };
  const auto store = [&](auto value, std::int64_t row, std::int64_t column) HWY_ATTR {
    hn::StoreU(hn::BitCast(d, value), d,
               reinterpret_cast<std::uint32_t*>(to_bytes + (row * to_stride + column) * kWord));
  };
  for (std::int64_t column = 0; column < columns; column += 4) {
    for (std::int64_t row = 0; row < rows; row += 4) {
      const auto row0 = load(row, column);
      const auto row1 = load(row + 1, column);
      const auto row2 = load(row + 2, column);
      const auto row3 = load(row + 3, column);
      const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, row0, row1));
      const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, row2, row3));
      const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, row0, row1));
      const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, row2, row3));
      store(hn::InterleaveLower(d64, low01, low23), column, row);
      store(hn::InterleaveUpper(d64, low01, low23), column + 1, row);
      store(hn::InterleaveLower(d64, high01, high23), column + 2, row);
      store(hn::InterleaveUpper(d64, high01, high23), column + 3, row);
    }
  }
#endif
}

/// The transpose of packed rows as the right side of a product: to[column / pair][row][pair]. `rows` is a
/// multiple of four, `columns` of eight, so that their pairs are one of four; `to` has a row for each pair.
template <typename Packed>
void pack_transposed(const Packed* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
                     Packed* to, std::int64_t to_row_stride) {
  constexpr std::int64_t kPerWord = 4 / sizeof(Packed);
  transpose_words(from, from_stride / kPerWord, rows, columns / kPerWord, to, to_row_stride / kPerWord);
}

/// Packed rows as the right side of a product whose depth they are: to[row / pair][column][pair].
inline void pack_pairs(const float* from, std::int64_t rows, std::int64_t columns, float* to) {
  std::copy_n(from, rows * columns, to);
}

inline void pack_pairs(const bf16* from, std::int64_t rows, std::int64_t columns, bf16* to) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      to[((row / 2) * columns + column) * 2 + row % 2] = from[row * columns + column];
    }
  }
#else
  const hn::Full128<std::uint16_t> d;
  for (std::int64_t row = 0; row < rows; row += 2) {
    const auto* first = reinterpret_cast<const std::uint16_t*>(from + row * columns);
    const std::uint16_t* second = first + columns;
    auto* target = reinterpret_cast<std::uint16_t*>(to + row * columns);
    for (std::int64_t column = 0; column < columns; column += 8) {
      const auto a = hn::LoadU(d, first + column);
      const auto b = hn::LoadU(d, second + column);
      hn::StoreU(hn::InterleaveLower(d, a, b), d, target + 2 * column);
      hn::StoreU(hn::InterleaveUpper(d, a, b), d, target + 2 * column + 8);
    }
  }
#endif
}

/// The plain transpose of packed rows: to[column][row]. `pairs` is the same rows after pack_pairs.
template <typename Packed>
void transpose_pairs(const Packed* pairs, std::int64_t rows, std::int64_t columns, Packed* to,
                     std::int64_t to_stride) {
  constexpr std::int64_t kPerWord = 4 / sizeof(Packed);
  transpose_words(pairs, columns, rows / kPerWord, columns, to, to_stride / kPerWord);
}

}  // namespace HWY_NAMESPACE
}  // namespace expedite::kernels::attention
HWY_AFTER_NAMESPACE();

#endif
