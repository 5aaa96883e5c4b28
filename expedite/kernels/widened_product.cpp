#include "expedite/kernels/widened_product.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "expedite/kernels/scratch.h"
#include "expedite/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expedite/kernels/widened_product.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "expedite/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace expedite::kernels::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kLanes = hn::MaxLanes(F32Tag());
// A register tile: the sums of 14 rows by two vectors, with a vector of each operand, fill 32 registers; six
// by two fill 16.
constexpr std::int64_t kTileRows = HWY_TARGET <= HWY_AVX3 ? 14 : 6;
constexpr std::int64_t kTileVectors = 2;
constexpr std::int64_t kTileColumns = kTileVectors * kLanes;
// Rows of a block of op(a) lie in the first-level cache (kTileRows x kDepth), a block of op(b) in the second
// (kDepth x kBlockColumns). Sums are taken over kDepth of K at a time, so it is part of what a product's bits
// are.
constexpr std::int64_t kDepth = 256;
constexpr std::int64_t kBlockColumns = 512;
constexpr std::int64_t kSumsStride = kBlockColumns + 16;  // rows start in different sets of the cache

struct Span {
  std::int64_t begin;
  std::int64_t size;
};

/// Rows of op(a), widened: element (row, depth) is at row * kRowStep + depth * kDepthStep. Either step is
/// one, as in the matrix that is read; both are constants, which makes every address of a tile a
/// displacement.
struct RowsAsStored {
  static constexpr std::int64_t kRowStep = kDepth + 16;  // rows start in different sets of the cache
  static constexpr std::int64_t kDepthStep = 1;
  static constexpr std::int64_t kFloats = kTileRows * kRowStep;

  static void pack(const ConstTensorView& a, Span rows, Span depth, float* to) {
    for (std::int64_t row = 0; row < rows.size; ++row) {
      const bf16* from = a.row<bf16>(rows.begin + row) + depth.begin;
      float* target = to + row * kRowStep;
      for_each_vector(depth.size, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
        vector.store(vector.load(from + i), target + i);
      });
    }
  }
};

struct RowsTransposed {
  static constexpr std::int64_t kRowStep = 1;
  static constexpr std::int64_t kDepthStep = (kTileRows + kLanes - 1) / kLanes * kLanes;
  static constexpr std::int64_t kFloats = kDepth * kDepthStep;

  static void pack(const ConstTensorView& a, Span rows, Span depth, float* to) {
    // Whole vectors, also where the last holds rows that the tile does not want.
    const bool whole = rows.begin + kDepthStep <= a.size(1);
    for (std::int64_t i = 0; i < depth.size; ++i) {
      const bf16* from = a.row<bf16>(depth.begin + i) + rows.begin;
      float* target = to + i * kDepthStep;
      for_each_vector(whole ? kDepthStep : rows.size,
                      [&](std::int64_t row, const auto& vector)
                          EXPEDITE_SIMD_LAMBDA { vector.store(vector.load(from + row), target + row); });
    }
  }
};

/// to[depth][kTileColumns] = columns of op(b) as it is stored, [K, N]; columns that b lacks are zero.
void pack_columns(const ConstTensorView& b, Span columns, Span depth, float* to) {
  for (std::int64_t i = 0; i < depth.size; ++i) {
    const bf16* from = b.row<bf16>(depth.begin + i) + columns.begin;
    float* target = to + i * kTileColumns;
    if (columns.size == kTileColumns) {
      for (std::int64_t vector = 0; vector < kTileVectors; ++vector) {
        hn::Store(WholeVector::load(from + vector * kLanes), F32Tag(), target + vector * kLanes);
      }
    } else {
      for (std::int64_t column = 0; column < kTileColumns; ++column) {
        target[column] = column < columns.size ? static_cast<float>(from[column]) : 0.0F;
      }
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
/// A vector whose block i of 128 bits is read from from + i * stride.
template <typename Tag>
HWY_INLINE hn::Vec<Tag> load_blocks(Tag tag, const bf16* from, std::int64_t stride) {
  if constexpr (hn::MaxLanes(tag) == 4) {
    return hn::LoadU(tag, reinterpret_cast<const std::uint32_t*>(from));
  } else {
    const hn::Half<Tag> half;
    const std::int64_t blocks = hn::MaxLanes(half) / 4;
    return hn::Combine(tag, load_blocks(half, from + blocks * stride, stride),
                       load_blocks(half, from, stride));
  }
}

/// Two depths of kLanes columns, held as pairs of bf16: the first in the lower halves.
HWY_INLINE void store_pair(hn::VFromD<hn::RebindToUnsigned<F32Tag>> pairs, float* to) {
  const hn::RebindToUnsigned<F32Tag> words;
  hn::Store(hn::BitCast(F32Tag(), hn::ShiftLeft<16>(pairs)), F32Tag(), to);
  hn::Store(hn::BitCast(F32Tag(), hn::And(pairs, hn::Set(words, 0xFFFF0000U))), F32Tag(), to + kTileColumns);
}

/// Eight depths of kLanes columns from rows of a transposed b: 4 x 4 transposes of pairs, one in each block.
HWY_INLINE void transpose_eight(const bf16* from, std::int64_t stride, float* to) {
  const hn::RebindToUnsigned<F32Tag> words;
  const hn::RepartitionToWide<decltype(words)> wide;
  constexpr std::int64_t kBlockRows = 4;
  const auto load = [&](std::int64_t row) EXPEDITE_SIMD_LAMBDA {
    return load_blocks(words, from + row * stride, kBlockRows * stride);
  };
  const auto row0 = load(0);
  const auto row1 = load(1);
  const auto row2 = load(2);
  const auto row3 = load(3);
  const auto low01 = hn::BitCast(wide, hn::InterleaveLower(words, row0, row1));
  const auto low23 = hn::BitCast(wide, hn::InterleaveLower(words, row2, row3));
  const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(words, row0, row1));
  const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(words, row2, row3));
  store_pair(hn::BitCast(words, hn::InterleaveLower(wide, low01, low23)), to);
  store_pair(hn::BitCast(words, hn::InterleaveUpper(wide, low01, low23)), to + 2 * kTileColumns);
  store_pair(hn::BitCast(words, hn::InterleaveLower(wide, high01, high23)), to + 4 * kTileColumns);
  store_pair(hn::BitCast(words, hn::InterleaveUpper(wide, high01, high23)), to + 6 * kTileColumns);
}
#endif

/// The same from a stored transposed, [N, K].
void pack_transposed_columns(const ConstTensorView& b, Span columns, Span depth, float* to) {
  for (std::int64_t first = 0; first < kTileColumns; first += kLanes) {
    const std::int64_t there = std::clamp<std::int64_t>(columns.size - first, 0, kLanes);
    std::int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
    constexpr std::int64_t kStep = 8;
    if (there == kLanes) {
      const bf16* from = b.row<bf16>(columns.begin + first) + depth.begin;
      for (; done + kStep <= depth.size; done += kStep) {
        transpose_eight(from + done, b.row_stride(), to + done * kTileColumns + first);
      }
    }
#endif
    for (std::int64_t i = done; i < depth.size; ++i) {
      for (std::int64_t column = 0; column < kLanes; ++column) {
        to[i * kTileColumns + first + column] =
            column < there ? static_cast<float>(b.row<bf16>(columns.begin + first + column)[depth.begin + i])
                           : 0.0F;
      }
    }
  }
}

/// Where a tile's sums go: onto those of earlier depths, and with the last depth to dst.
template <typename D>
struct Target {
  float* sums;
  std::int64_t sums_stride;
  bool add_sums;
  D* dst;  // null before the last depth
  std::int64_t dst_stride;
  bool add_dst;
};

/// One register tile: kRows of packed op(a) times packed columns of op(b).
template <typename Rows, typename D, int kRows>
HWY_NOINLINE void multiply_tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t depth,
                                Target<D> target) {
  const F32Tag d;
  F32 sums[kRows][kTileVectors];
  HWY_UNROLL(16)
  for (int row = 0; row < kRows; ++row) {
    sums[row][0] = zero();
    sums[row][1] = zero();
  }
  for (std::int64_t i = 0; i < depth; ++i) {
    const F32 columns0 = hn::Load(d, b);
    const F32 columns1 = hn::Load(d, b + kLanes);
    HWY_UNROLL(16)
    for (int row = 0; row < kRows; ++row) {
      const F32 left = hn::Set(d, a[row * Rows::kRowStep]);
      sums[row][0] = hn::MulAdd(left, columns0, sums[row][0]);
      sums[row][1] = hn::MulAdd(left, columns1, sums[row][1]);
    }
    a += Rows::kDepthStep;
    b += kTileColumns;
  }
  const auto finish = [&](const auto& put) EXPEDITE_SIMD_LAMBDA {
    HWY_UNROLL(16)
    for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(2)
      for (int vector = 0; vector < kTileVectors; ++vector) {
        put(sums[row][vector], row, vector * kLanes);
      }
    }
  };
  if (target.add_sums) {
    finish([&](F32& sum, std::int64_t row, std::int64_t column) EXPEDITE_SIMD_LAMBDA {
      sum = hn::Add(hn::LoadU(d, target.sums + row * target.sums_stride + column), sum);
    });
  }
  if (target.dst == nullptr) {
    finish([&](F32 sum, std::int64_t row, std::int64_t column)
               EXPEDITE_SIMD_LAMBDA { hn::StoreU(sum, d, target.sums + row * target.sums_stride + column); });
    return;
  }
  if (target.add_dst) {
    finish([&](F32& sum, std::int64_t row, std::int64_t column) EXPEDITE_SIMD_LAMBDA {
      sum = hn::Add(WholeVector::load(target.dst + row * target.dst_stride + column), sum);
    });
  }
  finish([&](F32 sum, std::int64_t row, std::int64_t column) EXPEDITE_SIMD_LAMBDA {
    WholeVector::store(sum, target.dst + row * target.dst_stride + column);
  });
}

template <typename Rows, typename D>
using TileFunction = void (*)(const float*, const float*, std::int64_t, Target<D>);

template <typename Rows, typename D, int... kIndices>
constexpr auto make_tile_table(std::integer_sequence<int, kIndices...> /*indices*/) {
  return std::array<TileFunction<Rows, D>, sizeof...(kIndices)>{&multiply_tile<Rows, D, kIndices + 1>...};
}

/// A tile whose columns reach beyond dst takes and leaves what it shares with dst here.
template <typename D>
struct EdgeTile {
  alignas(64) std::array<D, kTileRows * kTileColumns> dst;

  Target<D> load(Target<D> target, std::int64_t rows, std::int64_t columns) {
    if (target.dst == nullptr) {
      return target;
    }
    if (target.add_dst) {
      for (std::int64_t row = 0; row < rows; ++row) {
        std::copy_n(target.dst + row * target.dst_stride, columns, dst.data() + row * kTileColumns);
      }
    }
    target.dst = dst.data();
    target.dst_stride = kTileColumns;
    return target;
  }
  void store(const Target<D>& target, std::int64_t rows, std::int64_t columns) const {
    for (std::int64_t row = 0; target.dst != nullptr && row < rows; ++row) {
      std::copy_n(dst.data() + row * kTileColumns, columns, target.dst + row * target.dst_stride);
    }
  }
};

/// Names of scratch memory.
struct PackedRows;
struct PackedColumns;
struct SumsOfBlock;

template <typename Purpose>
float* scratch(std::int64_t floats) {
  return static_cast<float*>(thread_scratch<Purpose>(floats * static_cast<std::int64_t>(sizeof(float))));
}

/// One product into a dst of type D, with op(a) packed as Rows does.
template <typename Rows, typename D>
class Product {
 public:
  Product(const MatmulOperands& operands, MatmulOptions options, std::int64_t k)
      : a_(operands.a),
        b_(operands.b),
        dst_(operands.dst),
        options_(options),
        m_(dst_.size(0)),
        n_(dst_.size(1)),
        k_(k),
        rows_(scratch<PackedRows>(Rows::kFloats)),
        columns_(scratch<PackedColumns>(kDepth * kBlockColumns)),
        sums_(k > kDepth ? scratch<SumsOfBlock>(m_ * kSumsStride) : nullptr) {}

  void run() {
    for (std::int64_t column = 0; column < n_; column += kBlockColumns) {
      const Span columns{column, std::min(kBlockColumns, n_ - column)};
      for (std::int64_t k = 0; k < k_; k += kDepth) {
        multiply_block(columns, {k, std::min(kDepth, k_ - k)});
      }
    }
  }

 private:
  void multiply_block(Span columns, Span depth) {
    pack_block(columns, depth);
    const std::int64_t tiles = (m_ + kTileRows - 1) / kTileRows;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles of nearly equal heights: a last tile of one row would wait for its sums instead of computing.
      const std::int64_t row = m_ * tile / tiles;
      const Span rows{row, m_ * (tile + 1) / tiles - row};
      Rows::pack(a_, rows, depth, rows_);
      for (std::int64_t column = 0; column < columns.size; column += kTileColumns) {
        const std::int64_t width = std::min(kTileColumns, columns.size - column);
        multiply(rows, {columns.begin + column, width}, columns_ + column * depth.size, depth, column);
      }
    }
  }

  void pack_block(Span columns, Span depth) {
    for (std::int64_t column = 0; column < columns.size; column += kTileColumns) {
      const Span tile{columns.begin + column, std::min(kTileColumns, columns.size - column)};
      float* to = columns_ + column * depth.size;
      options_.transpose_b ? pack_transposed_columns(b_, tile, depth, to) : pack_columns(b_, tile, depth, to);
    }
  }

  void multiply(Span rows, Span columns, const float* b, Span depth, std::int64_t column_of_block) {
    static constexpr auto kTiles =
        make_tile_table<Rows, D>(std::make_integer_sequence<int, static_cast<int>(kTileRows)>());
    const auto tile = kTiles[static_cast<std::size_t>(rows.size - 1)];
    const Target<D> target = target_of(rows, columns, depth, column_of_block);
    if (columns.size == kTileColumns) {
      tile(rows_, b, depth.size, target);
    } else {
      EdgeTile<D> edge;
      tile(rows_, b, depth.size, edge.load(target, rows.size, columns.size));
      edge.store(target, rows.size, columns.size);
    }
  }

  [[nodiscard]] Target<D> target_of(Span rows, Span columns, Span depth, std::int64_t column_of_block) const {
    const bool last = depth.begin + depth.size == k_;
    return {.sums = sums_ == nullptr ? nullptr : sums_ + rows.begin * kSumsStride + column_of_block,
            .sums_stride = kSumsStride,
            .add_sums = depth.begin > 0,
            .dst = last ? dst_.row<D>(rows.begin) + columns.begin : nullptr,
            .dst_stride = dst_.row_stride(),
            .add_dst = options_.accumulate};
  }

  ConstTensorView a_;
  ConstTensorView b_;
  TensorView dst_;
  MatmulOptions options_;
  std::int64_t m_;
  std::int64_t n_;
  std::int64_t k_;
  float* rows_;     // a tile's rows of op(a)
  float* columns_;  // [tiles of the block][depth][kTileColumns]
  float* sums_;     // [m][kSumsStride], of depths before the last; null where there is but one
};

}  // namespace

void multiply_widened(const MatmulOperands& operands, MatmulOptions options) {
  const std::int64_t k = operands.a.size(options.transpose_a ? 0 : 1);
  const bool rounded = operands.dst.dtype() == DType::bf16;
  if (options.transpose_a) {
    rounded ? Product<RowsTransposed, bf16>(operands, options, k).run()
            : Product<RowsTransposed, float>(operands, options, k).run();
  } else {
    rounded ? Product<RowsAsStored, bf16>(operands, options, k).run()
            : Product<RowsAsStored, float>(operands, options, k).run();
  }
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels {

HWY_EXPORT(multiply_widened);

void widened_product(const MatmulOperands& operands, MatmulOptions options) {
  HWY_DYNAMIC_DISPATCH(multiply_widened)(operands, options);
}

}  // namespace expedite::kernels
#endif  // HWY_ONCE
