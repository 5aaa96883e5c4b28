// Backward attention: scores are computed again from q, k and the saved log-sum-exp, block by block. They are
// held transposed, a row for each key, so that the statistics of queries are vectors and both products that
// sum over queries read them as they are.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expedite/kernels/attention_backward.cpp"
#include <hwy/foreach_target.h>
// The order matters: every target includes the rest again.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "expedite/kernels/attention_dispatch.h"
#include "expedite/kernels/attention_internal.h"
#include "expedite/kernels/attention_pack-inl.h"
#include "expedite/kernels/attention_softmax-inl.h"
#include "expedite/kernels/attention_tiles-inl.h"

EXPEDITE_ATTENTION_BEFORE_NAMESPACE();
namespace expedite::kernels::attention {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kQueryBlock = 128;  // a multiple of kColumnAlignment
constexpr std::int64_t kKeyBlock = 96;     // a multiple of the tile's rows and of four

/// Type T of the tensors, and the arithmetic's type of operands.
template <typename T, typename Math>
class BackwardUnit {
 public:
  using Packed = typename Math::Packed;

  /// `scratch` may be null, to learn scratch_bytes() only. `longest`: tokens of the longest sequence.
  BackwardUnit(const BackwardArguments& arguments, std::int64_t longest, std::byte* scratch)
      : arguments_(arguments),
        dim_(arguments.options.head_dim),
        columns_(round_up(dim_, kColumnAlignment)),
        value_dim_(value_dim(arguments.options)),
        value_columns_(round_up(value_dim_, kColumnAlignment)),
        window_(arguments.options.sliding_window == 0 ? longest
                                                      : std::min(arguments.options.sliding_window, longest)),
        scale2_(arguments.options.scale * std::numbers::log2e_v<float>) {
    Carver carver(scratch);
    carve_keys(carver, round_up(longest, kKeyBlock));
    carve_queries(carver);
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
        if (!arguments_.sink_sums.empty()) {
          add_to_sink(unit, unit.begin + first, count, head);
        }
        const std::int64_t first_key = std::max<std::int64_t>(0, first - window_ + 1);
        for (std::int64_t key = round_down(first_key, kKeyBlock); key < first + count; key += kKeyBlock) {
          add_block(first, count, key, std::min(kKeyBlock, unit.count - key));
        }
        finish_queries(unit.begin + first, count, head);
      }
    }
    finish_keys(unit);
  }

 private:
  void carve_keys(Carver& carver, std::int64_t keys) {
    key_rows_ = carver.take<Packed>(keys * columns_);
    value_rows_ = carver.take<Packed>(keys * value_columns_);
    key_columns_ = carver.take<Packed>(keys * columns_);
    key_gradients_ = carver.take<float>(keys * columns_);
    value_gradients_ = carver.take<float>(keys * value_columns_);
  }

  void carve_queries(Carver& carver) {
    rows_ = carver.take<Packed>(std::max(kQueryBlock, kKeyBlock) * std::max(columns_, value_columns_));
    query_columns_ = carver.take<Packed>(kQueryBlock * columns_);
    query_pairs_ = carver.take<Packed>(kQueryBlock * columns_);
    dout_columns_ = carver.take<Packed>(kQueryBlock * value_columns_);
    dout_pairs_ = carver.take<Packed>(kQueryBlock * value_columns_);
    query_gradients_ = carver.take<float>(kQueryBlock * columns_);
    result_rows_ = carver.take<float>(kQueryBlock * columns_);
    log2_sum_exp_ = carver.take<float>(kQueryBlock);
    delta_ = carver.take<float>(kQueryBlock);
    scores_ = carver.take<float>(kTileRows * kQueryBlock);
    probability_gradients_ = carver.take<float>(kTileRows * kQueryBlock);
    probabilities_ = carver.take<Packed>(kKeyBlock * kQueryBlock);
    gradients_ = carver.take<Packed>(kKeyBlock * kQueryBlock);
    gradient_pairs_ = carver.take<Packed>(kKeyBlock * kQueryBlock);
  }

  /// Of one head's columns, `dim` of them.
  [[nodiscard]] Rows<const T> head_rows(const ConstTensorView& tensor, std::int64_t token, std::int64_t head,
                                        std::int64_t dim) const {
    return {tensor.row<T>(token) + head * dim, tensor.row_stride()};
  }
  [[nodiscard]] static std::int64_t pairs_of(std::int64_t dim) {
    return (dim + Math::kPair - 1) / Math::kPair;
  }

  void pack_keys_and_values(const Unit& unit) {
    for (std::int64_t first = 0; first < unit.count; first += kKeyBlock) {
      const std::int64_t count = std::min(kKeyBlock, unit.count - first);
      const std::int64_t at = first * columns_;
      load_rows(head_rows(arguments_.operands.k, unit.begin + first, unit.kv_head, dim_), count, dim_,
                key_rows_ + at, columns_, kKeyBlock);
      load_rows(head_rows(arguments_.operands.v, unit.begin + first, unit.kv_head, value_dim_), count,
                value_dim_, value_rows_ + first * value_columns_, value_columns_, kKeyBlock);
      pack_pairs(key_rows_ + at, kKeyBlock, columns_, rows_);
      transpose_pairs(rows_, kKeyBlock, columns_, key_columns_ + at, kKeyBlock);
    }
    const std::int64_t keys = round_up(unit.count, kKeyBlock);
    std::fill_n(key_gradients_, keys * columns_, 0.0F);
    std::fill_n(value_gradients_, keys * value_columns_, 0.0F);
  }

  void load_queries(std::int64_t token, std::int64_t count, std::int64_t head) {
    load_rows(head_rows(arguments_.operands.q, token, head, dim_), count, dim_, rows_, columns_, kQueryBlock);
    pack_transposed(rows_, columns_, kQueryBlock, columns_, query_columns_, kQueryBlock * Math::kPair);
    pack_pairs(rows_, kQueryBlock, columns_, query_pairs_);
    const Rows<const T> dout = head_rows(arguments_.dout, token, head, value_dim_);
    load_rows(dout, count, value_dim_, rows_, value_columns_, kQueryBlock);
    pack_transposed(rows_, value_columns_, kQueryBlock, value_columns_, dout_columns_,
                    kQueryBlock * Math::kPair);
    pack_pairs(rows_, kQueryBlock, value_columns_, dout_pairs_);

    const Rows<const T> out = head_rows(arguments_.out, token, head, value_dim_);
    const float* log_sum_exp = arguments_.log_sum_exp.row<float>(head) + token;
    for (std::int64_t row = 0; row < count; ++row) {
      delta_[row] = dot(dout[row], out[row], value_dim_);
      log2_sum_exp_[row] = log_sum_exp[row] * std::numbers::log2e_v<float>;
    }
    std::fill(delta_ + count, delta_ + kQueryBlock, 0.0F);
    std::fill(log2_sum_exp_ + count, log2_sum_exp_ + kQueryBlock, 0.0F);
    std::fill_n(query_gradients_, kQueryBlock * columns_, 0.0F);
  }

  /// Queries [first, first + count) of the sequence against its keys [origin, origin + keys).
  void add_block(std::int64_t first, std::int64_t count, std::int64_t origin, std::int64_t keys) {
    // Where not every query sees every key, score_gradients leaves gaps that the last product reads.
    const bool all_visible = count == kQueryBlock && keys == kKeyBlock && origin + keys - 1 <= first &&
                             first + count - 1 - window_ < origin;
    if (!all_visible) {
      std::fill_n(gradient_pairs_, kKeyBlock * kQueryBlock, Packed{});
    }
    for (std::int64_t key = 0; key < keys; key += kTileRows) {
      const Range visible = queries_of_tile(first, count, origin + key, std::min(kTileRows, keys - key));
      if (!visible.empty()) {
        score_gradients(first, count, origin, key, visible);
      }
    }
    for (std::int64_t key = 0; key < keys; key += kTileRows) {
      const std::int64_t height = std::min(kTileRows, keys - key);
      const Range visible = queries_of_tile(first, count, origin + key, height).aligned(Math::kPair);
      if (!visible.empty()) {
        add_to_keys(origin + key, height, key, visible);
      }
    }
    add_to_queries(first, count, origin, keys);
  }

  [[nodiscard]] Range queries_of_tile(std::int64_t first, std::int64_t count, std::int64_t key,
                                      std::int64_t height) const {
    return visible_queries(key, key + height - 1, window_, first).within(count);
  }

  /// One tile of keys, from `key` of the block on: probabilities and the gradients of its scores.
  void score_gradients(std::int64_t first, std::int64_t count, std::int64_t origin, std::int64_t key,
                       Range visible) {
    const Range columns = visible.aligned(kColumnAlignment);
    const std::int64_t width = columns.end - columns.begin;
    const std::int64_t first_key = origin + key;
    const std::int64_t column = columns.begin * Math::kPair;
    constexpr std::int64_t kStride = kQueryBlock * Math::kPair;
    multiply<Math>(kTileRows, width, pairs_of(dim_), {key_rows_ + first_key * columns_, columns_},
                   {query_columns_ + column, kStride}, scores_ + columns.begin, kQueryBlock, Into::overwrite);
    multiply<Math>(kTileRows, width, pairs_of(value_dim_),
                   {value_rows_ + first_key * value_columns_, value_columns_},
                   {dout_columns_ + column, kStride}, probability_gradients_ + columns.begin, kQueryBlock,
                   Into::overwrite);
    for (std::int64_t row = 0; row < kTileRows; row += 2) {
      const std::int64_t token = origin + key + row;
      const Range seen[2] = {queries_of_tile(first, count, token, 1),
                             queries_of_tile(first, count, token + 1, 1)};
      gradient_rows<Math>(scores_ + row * kQueryBlock, probability_gradients_ + row * kQueryBlock,
                          kQueryBlock, {log2_sum_exp_, delta_}, columns, seen, scale2_,
                          {probabilities_, gradients_, gradient_pairs_, kQueryBlock}, key + row);
    }
  }

  /// dv += P^T dout and dk += dS^T q, for the keys [token, token + height), rows from `key` of the block.
  void add_to_keys(std::int64_t token, std::int64_t height, std::int64_t key, Range visible) {
    const std::int64_t pairs = (visible.end - visible.begin) / Math::kPair;
    const std::int64_t from = key * kQueryBlock + visible.begin;
    multiply<Math>(height, value_columns_, pairs, {probabilities_ + from, kQueryBlock},
                   {dout_pairs_ + visible.begin * value_columns_, value_columns_ * Math::kPair},
                   value_gradients_ + token * value_columns_, value_columns_, Into::accumulate);
    multiply<Math>(height, columns_, pairs, {gradients_ + from, kQueryBlock},
                   {query_pairs_ + visible.begin * columns_, columns_ * Math::kPair},
                   key_gradients_ + token * columns_, columns_, Into::accumulate);
  }

  /// dq^T += k^T dS^T, in strips of queries that see different ranges of the block's keys.
  void add_to_queries(std::int64_t first, std::int64_t count, std::int64_t origin, std::int64_t keys) {
    constexpr std::int64_t kStrip = kTileVectors * kLanes;
    for (std::int64_t query = 0; query < count; query += kStrip) {
      const std::int64_t width = std::min(kStrip, count - query);
      const Range visible = visible_keys(first + query, first + query + width - 1, window_, origin)
                                .within(keys)
                                .aligned(Math::kPair);
      if (visible.empty()) {
        continue;
      }
      multiply<Math>(
          dim_, round_up(width, kLanes), (visible.end - visible.begin) / Math::kPair,
          {key_columns_ + origin * columns_ + visible.begin, kKeyBlock},
          {gradient_pairs_ + visible.begin * kQueryBlock + query * Math::kPair, kQueryBlock * Math::kPair},
          query_gradients_ + query, kQueryBlock, Into::accumulate);
    }
  }

  /// dsink -= p_sink dout · out: the sink's value is zero, and so is the gradient of its probability.
  void add_to_sink(const Unit& unit, std::int64_t token, std::int64_t count, std::int64_t head) {
    const float sink = sink_of(arguments_.operands, head);
    const float* log_sum_exp = arguments_.log_sum_exp.row<float>(head) + token;
    double sum = 0.0;
    for (std::int64_t row = 0; row < count; ++row) {
      sum -= static_cast<double>(std::exp(sink - log_sum_exp[row]) * delta_[row]);
    }
    arguments_.sink_sums[static_cast<std::size_t>(unit.sequence * arguments_.options.heads + head)] += sum;
  }

  void finish_queries(std::int64_t token, std::int64_t count, std::int64_t head) {
    transpose_words(query_gradients_, kQueryBlock, columns_, kQueryBlock, result_rows_, columns_);
    T* dq = arguments_.gradients.q.row<T>(token) + head * dim_;
    for (std::int64_t row = 0; row < count; ++row) {
      store_row<Math>(result_rows_ + row * columns_, dim_, arguments_.options.scale,
                      dq + row * arguments_.gradients.q.row_stride());
    }
  }

  void finish_keys(const Unit& unit) {
    T* dk = arguments_.gradients.k.row<T>(unit.begin) + unit.kv_head * dim_;
    T* dv = arguments_.gradients.v.row<T>(unit.begin) + unit.kv_head * value_dim_;
    for (std::int64_t row = 0; row < unit.count; ++row) {
      store_row<Math>(key_gradients_ + row * columns_, dim_, arguments_.options.scale,
                      dk + row * arguments_.gradients.k.row_stride());
      store_row<Math>(value_gradients_ + row * value_columns_, value_dim_, 1.0F,
                      dv + row * arguments_.gradients.v.row_stride());
    }
  }

  const BackwardArguments& arguments_;
  std::int64_t dim_;
  std::int64_t columns_;  // dim_, padded
  std::int64_t value_dim_;
  std::int64_t value_columns_;  // value_dim_, padded
  std::int64_t window_;
  float scale2_;
  std::int64_t scratch_bytes_ = 0;
  // Of the whole sequence.
  Packed* key_rows_ = nullptr;        // [keys][columns]
  Packed* value_rows_ = nullptr;      // [keys][value columns]
  Packed* key_columns_ = nullptr;     // [blocks][columns][kKeyBlock]
  float* key_gradients_ = nullptr;    // [keys][columns]
  float* value_gradients_ = nullptr;  // [keys][value columns]
  // Of a block of queries.
  Packed* rows_ = nullptr;            // what is being packed: [rows][(value) columns]
  Packed* query_columns_ = nullptr;   // [columns / pair][kQueryBlock][pair]
  Packed* query_pairs_ = nullptr;     // [kQueryBlock / pair][columns][pair]
  Packed* dout_columns_ = nullptr;    // as query_columns_, of value columns
  Packed* dout_pairs_ = nullptr;      // as query_pairs_, of value columns
  float* query_gradients_ = nullptr;  // [columns][kQueryBlock]
  float* result_rows_ = nullptr;      // [kQueryBlock][columns]
  float* log2_sum_exp_ = nullptr;     // [kQueryBlock]
  float* delta_ = nullptr;            // [kQueryBlock]
  // Of a block of queries and a tile or block of keys.
  float* scores_ = nullptr;                 // [kTileRows][kQueryBlock]
  float* probability_gradients_ = nullptr;  // [kTileRows][kQueryBlock]
  Packed* probabilities_ = nullptr;         // [kKeyBlock][kQueryBlock]
  Packed* gradients_ = nullptr;             // [kKeyBlock][kQueryBlock]
  Packed* gradient_pairs_ = nullptr;        // [kKeyBlock / pair][kQueryBlock][pair]
};

void run_backward(const BackwardArguments& arguments, Arithmetic arithmetic, MemoryPool& pool) {
#if EXPEDITE_ATTENTION_BF16_DOT
  if (arithmetic == Arithmetic::bf16_dot) {
    run_units<BackwardUnit<bf16, Bf16DotMath>>(arguments, pool);
    return;
  }
#else
  (void)arithmetic;
#endif
  if (arguments.operands.q.dtype() == DType::bf16) {
    run_units<BackwardUnit<bf16, PortableMath>>(arguments, pool);
  } else {
    run_units<BackwardUnit<float, PortableMath>>(arguments, pool);
  }
}

bool has_bf16_dot() {
  return EXPEDITE_ATTENTION_BF16_DOT != 0;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace expedite::kernels::attention
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels::attention {

HWY_EXPORT(run_backward);
HWY_EXPORT(has_bf16_dot);

void dispatch_backward(const BackwardArguments& arguments, Arithmetic arithmetic, MemoryPool& pool) {
  HWY_DYNAMIC_DISPATCH(run_backward)(arguments, arithmetic, pool);
}

bool compiled_with_bf16_dot() {
  return HWY_DYNAMIC_DISPATCH(has_bf16_dot)();
}

}  // namespace expedite::kernels::attention
#endif
