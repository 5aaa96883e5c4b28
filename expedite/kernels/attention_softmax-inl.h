// The elementwise parts of attention: the online softmax of a row of scores, and its gradient.
// Compiled once per CPU generation by Highway: include only from a file that uses hwy/foreach_target.h.

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
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
  const auto begin = static_cast<std::size_t>(std::clamp<std::int64_t>(range.begin - at, 0, kLanes));
  const auto end = static_cast<std::size_t>(std::clamp<std::int64_t>(range.end - at, 0, kLanes));
  return hn::AndNot(hn::FirstN(d, begin), hn::FirstN(d, end));
}

/// The whole vectors of `columns`, cut where masking starts and ends: only `inside` is visible throughout.
struct Parts {
  Range before;
  Range inside;
  Range after;
};

inline Parts split(Range columns, Range visible) {
  const std::int64_t first = std::clamp(round_up(visible.begin, kLanes), columns.begin, columns.end);
  const std::int64_t last = std::clamp(round_down(visible.end, kLanes), first, columns.end);
  return {{columns.begin, first}, {first, last}, {last, columns.end}};
}

// Below every score. Finite, so that differences from it are numbers.
inline constexpr float kLowest = std::numeric_limits<float>::lowest();

template <bool kMasked>
HWY_INLINE FloatVector largest_of(const float* scores, Range part, Range visible, FloatVector largest) {
  const Floats d;
  FloatVector other = largest;
  std::int64_t at = part.begin;
  for (; at + 2 * kLanes <= part.end && !kMasked; at += 2 * kLanes) {  // two chains hide the latency
    largest = hn::Max(largest, hn::LoadU(d, scores + at));
    other = hn::Max(other, hn::LoadU(d, scores + at + kLanes));
  }
  for (; at < part.end; at += kLanes) {
    FloatVector values = hn::LoadU(d, scores + at);
    if constexpr (kMasked) {
      values = hn::IfThenElse(lanes_in(at, visible), values, hn::Set(d, kLowest));
    }
    largest = hn::Max(largest, values);
  }
  return hn::Max(largest, other);
}

inline float largest_score(const float* scores, Range columns, Range visible) {
  const Parts parts = split(columns, visible);
  FloatVector largest = hn::Set(Floats(), kLowest);
  largest = largest_of<true>(scores, parts.before, visible, largest);
  largest = largest_of<false>(scores, parts.inside, visible, largest);
  largest = largest_of<true>(scores, parts.after, visible, largest);
  return hn::GetLane(hn::MaxOfLanes(Floats(), largest));
}

/// Writes 2^(scale2 * score - offset), zero outside `visible`, and returns sum plus what it wrote.
template <typename Math, bool kMasked>
HWY_INLINE FloatVector exponentiate(const float* scores, Range part, Range visible, float scale2,
                                    float offset, typename Math::Packed* probabilities, FloatVector sum) {
  const Floats d;
  const FloatVector factor = hn::Set(d, scale2);
  const FloatVector shift = hn::Set(d, offset);
  for (std::int64_t at = part.begin; at < part.end; at += kLanes) {
    FloatVector probability = Math::exp2(hn::MulSub(hn::LoadU(d, scores + at), factor, shift));
    if constexpr (kMasked) {
      probability = hn::IfThenElseZero(lanes_in(at, visible), probability);
    }
    sum = sum + probability;
    Math::store(probability, probabilities + at);
  }
  return sum;
}

/// What the online softmax knows of each query of a block so far. Arrays are padded by kColumnAlignment.
struct SoftmaxState {
  float* maximum;     // of the unscaled scores
  float* correction;  // 2^(scaled old - new maximum): what the last block's maximum did to earlier sums
  float* sums;        // [queries][kLanes]: of probabilities before division, lane by lane
};

/// Starts the softmax of `count` queries.
inline void start_softmax(SoftmaxState state, std::int64_t count) {
  std::fill_n(state.maximum, count + kColumnAlignment, kLowest);
  std::fill_n(state.sums, count * kLanes, 0.0F);
}

inline float sum_of_probabilities(SoftmaxState state, std::int64_t row) {
  return hn::GetLane(hn::SumOfLanes(Floats(), hn::LoadU(Floats(), state.sums + row * kLanes)));
}

/// Takes the maxima of a tile of queries, rows [row, row + kTileRows), up to `largest` and sets corrections.
/// Lanes beyond the tile hold kLowest and leave the state of later rows as it is.
template <typename Math>
void raise_maxima(SoftmaxState state, std::int64_t row, const float* largest, float scale2) {
  const Floats d;
  for (std::int64_t i = 0; i < kTileRows; i += kLanes) {
    const FloatVector before = hn::LoadU(d, state.maximum + row + i);
    const FloatVector now = hn::Max(hn::LoadU(d, largest + i), before);
    hn::StoreU(now, d, state.maximum + row + i);
    hn::StoreU(Math::exp2((before - now) * hn::Set(d, scale2)), d, state.correction + row + i);
  }
}

/// Takes one block's scores of a tile of queries, rows [row, row + height), into their softmax: writes
/// 2^(scale2 * (score - maximum)) to columns `columns` (whole vectors; zero outside visible[i]). Earlier sums
/// of probabilities are corrected here; the caller corrects its sums of values. scale2 is the scale times
/// log2(e), not negative. Rows of `scores` and `probabilities` are `stride` apart.
template <typename Math>
void softmax_tile(const float* scores, std::int64_t stride, Range columns, const Range* visible,
                  std::int64_t height, float scale2, SoftmaxState state, std::int64_t row,
                  typename Math::Packed* probabilities) {
  const Floats d;
  float largest[kColumnAlignment];
  std::fill_n(largest, kColumnAlignment, kLowest);
  for (std::int64_t i = 0; i < height; ++i) {
    largest[i] = largest_score(scores + i * stride, columns, visible[i]);
  }
  raise_maxima<Math>(state, row, largest, scale2);
  for (std::int64_t i = 0; i < height; ++i) {
    const float* from = scores + i * stride;
    typename Math::Packed* to = probabilities + i * stride;
    const float offset = scale2 * state.maximum[row + i];
    const Parts parts = split(columns, visible[i]);
    float* sums = state.sums + (row + i) * kLanes;
    FloatVector sum = hn::LoadU(d, sums) * hn::Set(d, state.correction[row + i]);
    sum = exponentiate<Math, true>(from, parts.before, visible[i], scale2, offset, to, sum);
    sum = exponentiate<Math, false>(from, parts.inside, visible[i], scale2, offset, to, sum);
    sum = exponentiate<Math, true>(from, parts.after, visible[i], scale2, offset, to, sum);
    hn::StoreU(sum, d, sums);
  }
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

template <typename Math, bool kMasked>
HWY_INLINE void gradient_part(const float* scores, const float* probability_gradients, std::int64_t stride,
                              QueryStatistics queries, Range part, const Range visible[2], float scale2,
                              ScoreGradients<typename Math::Packed> to, std::int64_t row) {
  for (std::int64_t at = part.begin; at < part.end; at += kLanes) {
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

/// For two neighbouring keys (the first one's row even): from their scores and the gradients of their
/// probabilities, over queries `columns`, to probabilities P and the gradients of scores P * (dP - delta),
/// zero outside `visible`. Rows of `scores` and `probability_gradients` are `stride` apart.
template <typename Math>
void gradient_rows(const float* scores, const float* probability_gradients, std::int64_t stride,
                   QueryStatistics queries, Range columns, const Range visible[2], float scale2,
                   ScoreGradients<typename Math::Packed> to, std::int64_t row) {
  const Range by_both = {std::max(visible[0].begin, visible[1].begin),
                         std::min(visible[0].end, visible[1].end)};
  const Parts parts = split(columns, by_both);
  gradient_part<Math, true>(scores, probability_gradients, stride, queries, parts.before, visible, scale2, to,
                            row);
  gradient_part<Math, false>(scores, probability_gradients, stride, queries, parts.inside, visible, scale2,
                             to, row);
  gradient_part<Math, true>(scores, probability_gradients, stride, queries, parts.after, visible, scale2, to,
                            row);
}

}  // namespace HWY_NAMESPACE
}  // namespace expedite::kernels::attention
HWY_AFTER_NAMESPACE();

#endif
