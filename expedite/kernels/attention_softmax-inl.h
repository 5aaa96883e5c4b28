// The elementwise parts of attention: the online softmax of a row of scores, and its gradient.
// Compiled once per CPU generation by Highway: include only from a file that uses hwy/foreach_target.h.

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "expedite/kernels/attention_tiles-inl.h"

#if defined(EXPEDITE_KERNELS_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPEDITE_KERNELS_ATTENTION_SOFTMAX_INL_H_
#undef EXPEDITE_KERNELS_ATTENTION_SOFTMAX_INL_H_
#else
#define EXPEDITE_KERNELS_ATTENTION_SOFTMAX_INL_H_
#endif

EXPEDITE_ATTENTION_BEFORE_NAMESPACE();
namespace expedite::kernels::attention {
namespace HWY_NAMESPACE {

/// The half-open range of columns of a block that something can see.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] bool empty() const { return begin >= end; }
  /// The same range, cut to [0, limit).
  [[nodiscard]] Range within(std::int64_t limit) const {
    return {std::clamp<std::int64_t>(begin, 0, limit), std::clamp<std::int64_t>(end, 0, limit)};
  }
  /// The smallest range around this one whose ends are multiples of `alignment`.
  [[nodiscard]] Range aligned(std::int64_t alignment) const {
    return {round_down(begin, alignment), round_up(end, alignment)};
  }
};

/// The keys that queries [first, last] see, counted from key `origin`.
inline Range visible_keys(std::int64_t first, std::int64_t last, std::int64_t window, std::int64_t origin) {
  return {std::max<std::int64_t>(0, first - window + 1) - origin, last + 1 - origin};
}
/// The queries that see keys [first, last], counted from query `origin`.
inline Range visible_queries(std::int64_t first, std::int64_t last, std::int64_t window,
                             std::int64_t origin) {
  return {first - origin, last + window - origin};
}

/// The lanes of the vector at column `at` that lie in `range`.
HWY_INLINE hn::Mask<Floats> lanes_in(std::int64_t at, Range range) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const auto column = hn::Iota(di, static_cast<std::int32_t>(at));
  const auto begin = hn::Set(di, static_cast<std::int32_t>(range.begin));
  const auto end = hn::Set(di, static_cast<std::int32_t>(range.end));
  return hn::RebindMask(d, hn::AndNot(hn::Lt(column, begin), hn::Lt(column, end)));
}

/// What the online softmax of one query knows so far.
struct RowState {
  float maximum = -std::numeric_limits<float>::infinity();  // of the unscaled scores
  float sum = 0.0F;                                         // of the probabilities before division
};

/// The score at each lane, or minus infinity outside `visible`.
template <bool kMasked>
HWY_INLINE FloatVector masked_scores(const float* scores, std::int64_t at, Range visible) {
  const Floats d;
  const FloatVector values = hn::LoadU(d, scores + at);
  if constexpr (kMasked) {
    return hn::IfThenElse(lanes_in(at, visible), values, hn::Set(d, -std::numeric_limits<float>::infinity()));
  } else {
    return values;
  }
}

template <bool kMasked>
float largest_score(const float* scores, Range columns, Range visible) {
  const Floats d;
  FloatVector even = hn::Set(d, -std::numeric_limits<float>::infinity());
  FloatVector odd = even;
  std::int64_t at = columns.begin;
  for (; at + 2 * kLanes <= columns.end; at += 2 * kLanes) {
    even = hn::Max(even, masked_scores<kMasked>(scores, at, visible));
    odd = hn::Max(odd, masked_scores<kMasked>(scores, at + kLanes, visible));
  }
  if (at < columns.end) {
    even = hn::Max(even, masked_scores<kMasked>(scores, at, visible));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(even, odd)));
}

/// Writes 2^(scale2 * score - offset), zero outside `visible`, and returns the sum.
template <typename Math, bool kMasked>
float exponentiate(const float* scores, Range columns, Range visible, float scale2, float offset,
                   typename Math::Packed* probabilities) {
  const Floats d;
  const FloatVector factor = hn::Set(d, scale2);
  const FloatVector shift = hn::Set(d, offset);
  FloatVector sum = hn::Zero(d);
  for (std::int64_t at = columns.begin; at < columns.end; at += kLanes) {
    FloatVector probability = Math::exp2(hn::MulSub(hn::LoadU(d, scores + at), factor, shift));
    if constexpr (kMasked) {
      probability = hn::IfThenElseZero(lanes_in(at, visible), probability);
    }
    sum = sum + probability;
    Math::store(probability, probabilities + at);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// Takes one block's scores of one query into its softmax: writes 2^(scale2 * (score - maximum)) to columns
/// `columns` (whole vectors; zero outside `visible`), and rescales `sums`, the query's weighted sum of
/// values, when the maximum grows. scale2 is the scale times log2(e), not negative.
template <typename Math>
void softmax_row(const float* scores, Range columns, Range visible, float scale2, RowState& state,
                 typename Math::Packed* probabilities, float* sums, std::int64_t sums_columns) {
  if (visible.empty()) {
    std::fill(probabilities + columns.begin, probabilities + columns.end, typename Math::Packed{});
    return;
  }
  const bool masked = visible.begin > columns.begin || visible.end < columns.end;
  const float largest =
      masked ? largest_score<true>(scores, columns, visible) : largest_score<false>(scores, columns, visible);
  if (largest > state.maximum) {
    const float correction = state.sum > 0.0F ? std::exp2(scale2 * (state.maximum - largest)) : 0.0F;
    state.maximum = largest;
    state.sum *= correction;
    const Floats d;
    for (std::int64_t i = 0; i < sums_columns; i += kLanes) {
      hn::StoreU(hn::LoadU(d, sums + i) * hn::Set(d, correction), d, sums + i);
    }
  }
  const float offset = scale2 * state.maximum;
  state.sum += masked ? exponentiate<Math, true>(scores, columns, visible, scale2, offset, probabilities)
                      : exponentiate<Math, false>(scores, columns, visible, scale2, offset, probabilities);
}

HWY_INLINE FloatVector load_floats(const float* from) {
  return hn::LoadU(Floats(), from);
}
HWY_INLINE FloatVector load_floats(const bf16* from) {
  const hn::RebindToUnsigned<Floats> words;
  const hn::Rebind<std::uint16_t, Floats> halves;
  const auto half = hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(words, half)));
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

/// Of one query each: log2 of the softmax's denominator, and the sum of dout * out.
struct QueryStatistics {
  const float* log2_sum_exp;
  const float* delta;
};

/// Where the gradients of one block's scores go: probabilities and score gradients as rows of keys, and score
/// gradients also in pairs of keys, as the right side of a product.
template <typename Packed>
struct ScoreGradients {
  Packed* probabilities;
  Packed* gradients;
  Packed* gradient_pairs;
  std::int64_t stride;  // queries in a row
};

template <typename Math, bool kMasked>
HWY_INLINE void gradient_vector(const float* scores, const float* probability_gradients,
                                QueryStatistics queries, std::int64_t at, Range visible, float scale2,
                                FloatVector& probability, FloatVector& gradient) {
  const Floats d;
  const FloatVector exponent =
      hn::MulSub(hn::LoadU(d, scores + at), hn::Set(d, scale2), hn::LoadU(d, queries.log2_sum_exp + at));
  probability = Math::exp2(exponent);
  gradient = probability * (hn::LoadU(d, probability_gradients + at) - hn::LoadU(d, queries.delta + at));
  if constexpr (kMasked) {
    const auto mask = lanes_in(at, visible);
    probability = hn::IfThenElseZero(mask, probability);
    gradient = hn::IfThenElseZero(mask, gradient);
  }
}

/// For two neighbouring keys (the first one's row even): from their scores and the gradients of their
/// probabilities, over queries `columns`, to probabilities P and the gradients of scores P * (dP - delta).
/// Rows of `scores` and `probability_gradients` start at `columns.begin` and are `stride` apart.
template <typename Math, bool kMasked>
void gradient_rows(const float* scores, const float* probability_gradients, std::int64_t stride,
                   QueryStatistics queries, Range columns, const Range visible[2], float scale2,
                   ScoreGradients<typename Math::Packed> to, std::int64_t row) {
  for (std::int64_t at = columns.begin; at < columns.end; at += kLanes) {
    FloatVector probability[2];
    FloatVector gradient[2];
    HWY_UNROLL(2)
    for (int i = 0; i < 2; ++i) {
      gradient_vector<Math, kMasked>(scores + i * stride, probability_gradients + i * stride, queries, at,
                                     visible[i], scale2, probability[i], gradient[i]);
    }
    typename Math::Packed* first = to.probabilities + row * to.stride + at;
    Math::store(probability[0], first);
    Math::store(probability[1], first + to.stride);
    first = to.gradients + row * to.stride + at;
    Math::store_two_rows(gradient[0], gradient[1], first, first + to.stride,
                         to.gradient_pairs + row * to.stride + at * Math::kPair, to.stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace expedite::kernels::attention
HWY_AFTER_NAMESPACE();

#endif
