// Forward attention: for a block of queries, over the blocks of keys they see, scores, online softmax and the
// weighted sum of values. Keys and values of a sequence are packed once and serve all query heads of their
// group.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expedite/kernels/attention_forward.cpp"
#include <hwy/foreach_target.h>
// The order matters: every target includes the rest again.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "expedite/kernels/arguments.h"
#include "expedite/kernels/attention_dispatch.h"
#include "expedite/kernels/attention_internal.h"
#include "expedite/kernels/attention_pack-inl.h"
#include "expedite/kernels/attention_softmax-inl.h"
#include "expedite/kernels/attention_tiles-inl.h"

EXPEDITE_ATTENTION_BEFORE_NAMESPACE();
namespace expedite::kernels::attention {
namespace HWY_NAMESPACE {
namespace {

// A multiple of the tile's rows. Large enough to amortise packing, small enough for the sums to stay in L1.
constexpr std::int64_t kQueryBlock = 96;
constexpr std::int64_t kKeyBlock = 128;

/// Of one query: what makes its sums of values its output, and what backward keeps.
struct Denominator {
  float factor;
  float log_sum_exp;
};

/// `sum` is of exp(score - maximum). Neither side overflows, whichever of sink and maximum is larger. Out of
/// line, so that what the compiler makes of rows without a sink is what it makes of them alone.
HWY_NOINLINE Denominator add_sink(float sum, float unscaled_maximum, float scale, float sink) {
  const float maximum = unscaled_maximum * scale;
  const float largest = std::max(maximum, sink);
  const float correction = std::exp(maximum - largest);
  const float whole = sum * correction + std::exp(sink - largest);
  return {correction / whole, largest + std::log(whole)};
}

/// Type T of the tensors, and the arithmetic's type of operands.
template <typename T, typename Math>
class ForwardUnit {
 public:
  using Packed = typename Math::Packed;

  /// `scratch` may be null, to learn scratch_bytes() only. `longest`: tokens of the longest sequence.
  ForwardUnit(const ForwardArguments& arguments, std::int64_t longest, std::byte* scratch)
      : arguments_(arguments),
        dim_(arguments.options.head_dim),
        columns_(round_up(dim_, kColumnAlignment)),
        value_dim_(value_dim(arguments.options)),
        value_columns_(round_up(value_dim_, kColumnAlignment)),
        window_(arguments.options.sliding_window == 0 ? longest
                                                      : std::min(arguments.options.sliding_window, longest)),
        scale2_(std::abs(arguments.options.scale) * std::numbers::log2e_v<float>) {
    const std::int64_t keys = round_up(longest, kKeyBlock);
    Carver carver(scratch);
    keys_ = carver.take<Packed>(keys * columns_);
    values_ = carver.take<Packed>(keys * value_columns_);
    rows_ = carver.take<Packed>(std::max(kKeyBlock, kQueryBlock) * std::max(columns_, value_columns_));
    scores_ = carver.take<float>(kTileRows * kKeyBlock);
    probabilities_ = carver.take<Packed>(kQueryBlock * kKeyBlock);
    sums_ = carver.take<float>(kQueryBlock * value_columns_);
    state_.maximum = carver.take<float>(kQueryBlock + kColumnAlignment);
    state_.correction = carver.take<float>(kQueryBlock + kColumnAlignment);
    state_.sums = carver.take<float>(kQueryBlock * kLanes);
    scratch_bytes_ = carver.bytes();
  }

  [[nodiscard]] std::int64_t scratch_bytes() const { return scratch_bytes_; }

  void run(const Unit& unit) {
    pack_keys_and_values(unit);
    const std::int64_t group = arguments_.options.heads / arguments_.options.kv_heads;
    for (std::int64_t head = unit.kv_head * group; head < (unit.kv_head + 1) * group; ++head) {
      for (std::int64_t first = 0; first < unit.count; first += kQueryBlock) {
        const std::int64_t count = std::min(kQueryBlock, unit.count - first);
        load_queries(unit.begin + first, count, head);
        const std::int64_t first_key = std::max<std::int64_t>(0, first - window_ + 1);
        for (std::int64_t block = first_key / kKeyBlock; block * kKeyBlock < first + count; ++block) {
          add_block(first, count, block * kKeyBlock);
        }
        finish(unit.begin + first, count, head);
      }
    }
  }

 private:
  /// Of one head's columns, `dim` of them.
  [[nodiscard]] Rows<const T> head_rows(const ConstTensorView& tensor, std::int64_t token, std::int64_t head,
                                        std::int64_t dim) const {
    return {tensor.row<T>(token) + head * dim, tensor.row_stride()};
  }
  [[nodiscard]] std::int64_t key_pairs() const { return (dim_ + Math::kPair - 1) / Math::kPair; }

  void pack_keys_and_values(const Unit& unit) {
    for (std::int64_t first = 0; first < unit.count; first += kKeyBlock) {
      const std::int64_t count = std::min(kKeyBlock, unit.count - first);
      load_rows(head_rows(arguments_.operands.k, unit.begin + first, unit.kv_head, dim_), count, dim_, rows_,
                columns_, kKeyBlock);
      pack_transposed(rows_, columns_, kKeyBlock, columns_, keys_ + first * columns_,
                      kKeyBlock * Math::kPair);
      load_rows(head_rows(arguments_.operands.v, unit.begin + first, unit.kv_head, value_dim_), count,
                value_dim_, rows_, value_columns_, kKeyBlock);
      pack_pairs(rows_, kKeyBlock, value_columns_, values_ + first * value_columns_);
    }
  }

  void load_queries(std::int64_t token, std::int64_t count, std::int64_t head) {
    load_rows(head_rows(arguments_.operands.q, token, head, dim_), count, dim_, rows_, columns_, count);
    if (arguments_.options.scale < 0.0F) {  // the softmax takes the largest score before it scales
      std::transform(rows_, rows_ + count * columns_, rows_,
                     [](Packed value) { return Packed(-static_cast<float>(value)); });
    }
    std::fill_n(sums_, count * value_columns_, 0.0F);
    start_softmax(state_, count);
  }

  /// Queries [first, first + count) of the sequence against the block of keys that starts at `origin`.
  void add_block(std::int64_t first, std::int64_t count, std::int64_t origin) {
    for (std::int64_t row = 0; row < count; row += kTileRows) {
      const std::int64_t height = std::min(kTileRows, count - row);
      const Range visible = visible_to_tile(first + row, height, origin);
      if (visible.empty()) {
        continue;
      }
      const Range columns = visible.aligned(kColumnAlignment);
      multiply<Math>(height, columns.end - columns.begin, key_pairs(), {rows_ + row * columns_, columns_},
                     {keys_ + origin * columns_ + columns.begin * Math::kPair, kKeyBlock * Math::kPair},
                     scores_ + columns.begin, kKeyBlock, Into::overwrite);
      Range seen[kTileRows];
      for (std::int64_t i = 0; i < height; ++i) {
        seen[i] = visible_to_tile(first + row + i, 1, origin);
      }
      softmax_tile<Math>(scores_, kKeyBlock, columns, seen, height, scale2_, state_, row,
                         probabilities_ + row * kKeyBlock);
    }
    for (std::int64_t row = 0; row < count; row += kTileRows) {
      const std::int64_t height = std::min(kTileRows, count - row);
      const Range visible = visible_to_tile(first + row, height, origin).aligned(Math::kPair);
      if (visible.empty()) {
        continue;
      }
      multiply<Math>(height, value_columns_, (visible.end - visible.begin) / Math::kPair,
                     {probabilities_ + row * kKeyBlock + visible.begin, kKeyBlock},
                     {values_ + (origin + visible.begin) * value_columns_, value_columns_ * Math::kPair},
                     sums_ + row * value_columns_, value_columns_, Into::accumulate, state_.correction + row);
    }
  }

  [[nodiscard]] Range visible_to_tile(std::int64_t query, std::int64_t height, std::int64_t origin) const {
    return visible_keys(query, query + height - 1, window_, origin).within(kKeyBlock);
  }

  void finish(std::int64_t token, std::int64_t count, std::int64_t head) {
    T* out = arguments_.out.row<T>(token) + head * value_dim_;
    float* log_sum_exp = arguments_.log_sum_exp.row<float>(head) + token;
    const bool with_sink = present(arguments_.operands.sinks);
    const float sink = with_sink ? sink_of(arguments_.operands, head) : 0.0F;
    for (std::int64_t row = 0; row < count; ++row) {
      const float sum = sum_of_probabilities(state_, row);
      const float scale = std::abs(arguments_.options.scale);
      const Denominator whole = with_sink
                                    ? add_sink(sum, state_.maximum[row], scale, sink)
                                    : Denominator{1.0F / sum, state_.maximum[row] * scale + std::log(sum)};
      store_row<Math>(sums_ + row * value_columns_, value_dim_, whole.factor,
                      out + row * arguments_.out.row_stride());
      log_sum_exp[row] = whole.log_sum_exp;
    }
  }

  const ForwardArguments& arguments_;
  std::int64_t dim_;
  std::int64_t columns_;  // dim_, padded
  std::int64_t value_dim_;
  std::int64_t value_columns_;  // value_dim_, padded
  std::int64_t window_;
  float scale2_;
  std::int64_t scratch_bytes_ = 0;
  Packed* keys_ = nullptr;           // [blocks][columns / pair][kKeyBlock][pair]
  Packed* values_ = nullptr;         // [keys / pair][value columns][pair]
  Packed* rows_ = nullptr;           // queries of a block, or what is being packed: [rows][(value) columns]
  float* scores_ = nullptr;          // [kTileRows][kKeyBlock]
  Packed* probabilities_ = nullptr;  // [kQueryBlock][kKeyBlock]
  float* sums_ = nullptr;            // [kQueryBlock][value columns]
  SoftmaxState state_{};
};

void run_forward(const ForwardArguments& arguments, Arithmetic arithmetic, MemoryPool& pool) {
#if EXPEDITE_ATTENTION_BF16_DOT
  if (arithmetic == Arithmetic::bf16_dot) {
    run_units<ForwardUnit<bf16, Bf16DotMath>>(arguments, pool);
    return;
  }
#else
  (void)arithmetic;
#endif
  if (arguments.operands.q.dtype() == DType::bf16) {
    run_units<ForwardUnit<bf16, PortableMath>>(arguments, pool);
  } else {
    run_units<ForwardUnit<float, PortableMath>>(arguments, pool);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace expedite::kernels::attention
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels::attention {

HWY_EXPORT(run_forward);

void dispatch_forward(const ForwardArguments& arguments, Arithmetic arithmetic, MemoryPool& pool) {
  HWY_DYNAMIC_DISPATCH(run_forward)(arguments, arithmetic, pool);
}

}  // namespace expedite::kernels::attention
#endif
