// The products of attention, in tiles that stay in registers, with two arithmetics behind one interface.
// Compiled once per CPU generation by Highway: include only from a file that uses hwy/foreach_target.h.
//
// A product is C[rows, columns] (+)= A[rows, depth] B[depth, columns]. A is row-major. B is packed: pairs of
// depth (two for bf16, one for fp32) lie together, then columns: B[depth / pair][columns][pair], which is the
// order in which the dot-product instruction reads it.

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "expedite/tensor/dtype.h"

// Highway 1.0.3 names no target with bf16 dot products. Code for its AVX-512 target is therefore compiled
// with that instruction allowed; only Bf16DotMath uses it, which runs only where the CPU has it.
#undef EXPEDITE_ATTENTION_BF16_DOT
#undef EXPEDITE_ATTENTION_BEFORE_NAMESPACE
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86 && defined(HWY_TARGET_STR)
#include <immintrin.h>
#define EXPEDITE_ATTENTION_BF16_DOT 1
#define EXPEDITE_ATTENTION_BEFORE_NAMESPACE()       \
  HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16") \
  static_assert(true, "for the semicolon")
#else
#define EXPEDITE_ATTENTION_BF16_DOT 0
#define EXPEDITE_ATTENTION_BEFORE_NAMESPACE() HWY_BEFORE_NAMESPACE()
#endif

#if defined(EXPEDITE_KERNELS_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPEDITE_KERNELS_ATTENTION_TILES_INL_H_
#undef EXPEDITE_KERNELS_ATTENTION_TILES_INL_H_
#else
#define EXPEDITE_KERNELS_ATTENTION_TILES_INL_H_
#endif

EXPEDITE_ATTENTION_BEFORE_NAMESPACE();
namespace expedite::kernels::attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using FloatVector = hn::Vec<Floats>;
inline constexpr std::int64_t kLanes = hn::MaxLanes(Floats());

// Columns are padded to this many, a whole number of vectors on every target.
inline constexpr std::int64_t kColumnAlignment = 16;
// Six rows by four vectors of sums, with their operands, fill 32 registers; six by two fill 16.
inline constexpr std::int64_t kTileRows = 6;
inline constexpr std::int64_t kTileVectors = kLanes >= 16 ? 4 : 2;

inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
inline std::int64_t round_down(std::int64_t value, std::int64_t multiple) {
  return value / multiple * multiple;
}

// fp32 operands and multiply-adds.
struct PortableMath {
  using Packed = float;
  using Operand = FloatVector;
  static constexpr std::int64_t kPair = 1;

  static HWY_INLINE Operand broadcast(const float* value) { return hn::Set(Floats(), *value); }
  static HWY_INLINE Operand load(const float* values) { return hn::LoadU(Floats(), values); }
  static HWY_INLINE FloatVector multiply_add(Operand a, Operand b, FloatVector sum) {
    return hn::MulAdd(a, b, sum);
  }
  static HWY_INLINE void store(FloatVector values, float* to) { hn::StoreU(values, Floats(), to); }
  // Rows 2i and 2i + 1 of a matrix, each to its own row and together in pairs: with pairs of one, rows again.
  static HWY_INLINE void store_two_rows(FloatVector first, FloatVector second, float* to_first,
                                        float* to_second, float* to_pairs, std::int64_t pairs_stride) {
    store(first, to_first);
    store(second, to_second);
    store(first, to_pairs);
    store(second, to_pairs + pairs_stride);
  }
  // 2^x to fp32's rounding; 0 below 2^-126. A minimax polynomial of 2^f on |f| <= 1/2.
  static HWY_INLINE FloatVector exp2(FloatVector x) {
    const Floats d;
    const hn::RebindToSigned<Floats> di;
    const FloatVector clamped = hn::Min(hn::Max(x, hn::Set(d, -127.0F)), hn::Set(d, 127.0F));
    const FloatVector whole = hn::Round(clamped);
    const FloatVector f = clamped - whole;
    FloatVector p = hn::Set(d, 1.5345812e-4F);
    p = hn::MulAdd(p, f, hn::Set(d, 1.3399931e-3F));
    p = hn::MulAdd(p, f, hn::Set(d, 9.6184890e-3F));
    p = hn::MulAdd(p, f, hn::Set(d, 5.5503288e-2F));
    p = hn::MulAdd(p, f, hn::Set(d, 2.4022647e-1F));
    p = hn::MulAdd(p, f, hn::Set(d, 6.9314721e-1F));
    p = hn::MulAdd(p, f, hn::Set(d, 1.0F));
    const auto exponent = hn::ConvertTo(di, whole) + hn::Set(di, 127);
    const FloatVector power = hn::BitCast(d, hn::ShiftLeft<23>(exponent));
    return hn::IfThenElse(hn::IsNaN(x), x, p * power);
  }
};

#if EXPEDITE_ATTENTION_BF16_DOT
// bf16 operands in pairs, fp32 sums.
struct Bf16DotMath {
  using Packed = bf16;
  using Operand = __m512bh;
  static constexpr std::int64_t kPair = 2;

  static HWY_INLINE Operand broadcast(const bf16* pair) {
    int word = 0;
    std::memcpy(&word, pair, sizeof(word));
    return reinterpret_cast<Operand>(_mm512_set1_epi32(word));
  }
  static HWY_INLINE Operand load(const bf16* pairs) {
    return reinterpret_cast<Operand>(_mm512_loadu_si512(pairs));
  }
  static HWY_INLINE FloatVector multiply_add(Operand a, Operand b, FloatVector sum) {
    return FloatVector{_mm512_dpbf16_ps(sum.raw, a, b)};
  }
  static HWY_INLINE void store(FloatVector values, bf16* to) {
    const __m256bh rounded = _mm512_cvtneps_pbh(values.raw);
    std::memcpy(to, &rounded, sizeof(rounded));
  }
  static HWY_INLINE void store_two_rows(FloatVector first, FloatVector second, bf16* to_first,
                                        bf16* to_second, bf16* to_pairs, std::int64_t /*pairs_stride*/) {
    const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second.raw, first.raw));
    const __m256i lower = _mm512_castsi512_si256(both);
    const __m256i upper = _mm512_extracti64x4_epi64(both, 1);
    std::memcpy(to_first, &lower, sizeof(lower));
    std::memcpy(to_second, &upper, sizeof(upper));
    const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                                23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(to_pairs, _mm512_permutexvar_epi16(interleave, both));
  }
  // 2^x to 3e-6 relative, far below bf16's rounding. A minimax polynomial of 2^f on [0, 1).
  static HWY_INLINE FloatVector exp2(FloatVector x) {
    const Floats d;
    constexpr int kFraction = 0x01;  // x - floor(x)
    const FloatVector f{_mm512_reduce_ps(x.raw, kFraction)};
    FloatVector p = hn::Set(d, 1.3534167e-2F);
    p = hn::MulAdd(p, f, hn::Set(d, 5.2011464e-2F));
    p = hn::MulAdd(p, f, hn::Set(d, 2.4144276e-1F));
    p = hn::MulAdd(p, f, hn::Set(d, 6.9300383e-1F));
    p = hn::MulAdd(p, f, hn::Set(d, 1.0000026F));
    return FloatVector{_mm512_scalef_ps(p.raw, x.raw)};
  }
};
#endif

/// One register tile: C[kRows, kVectors vectors] (+)= A[kRows, depth] B[depth, ...]. Strides in elements; B's
/// is from one pair of depth to the next.
template <typename Math, int kRows, int kVectors>
HWY_NOINLINE void multiply_tile(const typename Math::Packed* HWY_RESTRICT a, std::int64_t a_stride,
                                const typename Math::Packed* HWY_RESTRICT b, std::int64_t b_stride,
                                std::int64_t pairs, float* HWY_RESTRICT c, std::int64_t c_stride,
                                const float* HWY_RESTRICT factors, bool accumulate) {
  const Floats d;
  FloatVector sums[kRows][kVectors];
  HWY_UNROLL(8)
  for (int row = 0; row < kRows; ++row) {
    HWY_UNROLL(4)
    for (int vector = 0; vector < kVectors; ++vector) {
      sums[row][vector] = accumulate ? hn::LoadU(d, c + row * c_stride + vector * kLanes) : hn::Zero(d);
      if (factors != nullptr) {
        sums[row][vector] = sums[row][vector] * hn::Set(d, factors[row]);
      }
    }
  }
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    typename Math::Operand columns[kVectors];
    HWY_UNROLL(4)
    for (int vector = 0; vector < kVectors; ++vector) {
      columns[vector] = Math::load(b + vector * kLanes * Math::kPair);
    }
    HWY_UNROLL(8)
    for (int row = 0; row < kRows; ++row) {
      const typename Math::Operand left = Math::broadcast(a + row * a_stride);
      HWY_UNROLL(4)
      for (int vector = 0; vector < kVectors; ++vector) {
        sums[row][vector] = Math::multiply_add(left, columns[vector], sums[row][vector]);
      }
    }
    a += Math::kPair;
    b += b_stride;
  }
  HWY_UNROLL(8)
  for (int row = 0; row < kRows; ++row) {
    HWY_UNROLL(4)
    for (int vector = 0; vector < kVectors; ++vector) {
      hn::StoreU(sums[row][vector], d, c + row * c_stride + vector * kLanes);
    }
  }
}

template <typename Math>
using TileFunction = void (*)(const typename Math::Packed*, std::int64_t, const typename Math::Packed*,
                              std::int64_t, std::int64_t, float*, std::int64_t, const float*, bool);

template <typename Math, int... kIndices>
constexpr auto make_tile_table(std::integer_sequence<int, kIndices...> /*indices*/) {
  return std::array<TileFunction<Math>, sizeof...(kIndices)>{
      &multiply_tile<Math, kIndices / kTileVectors + 1, kIndices % kTileVectors + 1>...};
}

/// A of a product, and B: data and stride in elements (B's from one pair of depth to the next).
template <typename Packed>
struct Matrix {
  const Packed* data;
  std::int64_t stride;
};

enum class Into : bool { overwrite, accumulate };

/// C (+)= A B for any number of rows; columns a multiple of the vector's lanes; depth in pairs. With
/// `factors`, one per row, what C holds is first multiplied by them.
template <typename Math>
void multiply(std::int64_t rows, std::int64_t columns, std::int64_t pairs, Matrix<typename Math::Packed> a,
              Matrix<typename Math::Packed> b, float* c, std::int64_t c_stride, Into into,
              const float* factors = nullptr) {
  static constexpr auto kTiles =
      make_tile_table<Math>(std::make_integer_sequence<int, kTileRows * kTileVectors>());
  const std::int64_t row_tiles = (rows + kTileRows - 1) / kTileRows;
  for (std::int64_t column = 0; column < columns; column += kTileVectors * kLanes) {
    const std::int64_t vectors = std::min((columns - column) / kLanes, kTileVectors);
    for (std::int64_t tile = 0; tile < row_tiles; ++tile) {
      // Tiles of nearly equal heights: a last tile of one row would wait for its sums instead of computing.
      const std::int64_t row = rows * tile / row_tiles;
      const std::int64_t height = rows * (tile + 1) / row_tiles - row;
      kTiles[static_cast<std::size_t>((height - 1) * kTileVectors + vectors - 1)](
          a.data + row * a.stride, a.stride, b.data + column * Math::kPair, b.stride, pairs,
          c + row * c_stride + column, c_stride, factors == nullptr ? nullptr : factors + row,
          into == Into::accumulate);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace expedite::kernels::attention
HWY_AFTER_NAMESPACE();

#endif
