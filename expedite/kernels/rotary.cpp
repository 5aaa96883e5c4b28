#include "expedite/kernels/rotary.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "expedite/kernels/arguments.h"
#include "expedite/kernels/parallel.h"
#include "expedite/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expedite/kernels/rotary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Reads what highway.h defines.
#include <hwy/contrib/math/math-inl.h>

#include "expedite/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace expedite::kernels::HWY_NAMESPACE {

// angles modulo 2 pi, into [-pi, pi]. In double, because a position of 100000 radians would leave an fp32
// reduction with three digits.
void reduce_angles(float* angles, std::int64_t count) {
  const hn::ScalableTag<double> wide;
  const hn::Rebind<float, decltype(wide)> narrow;
  const auto step = static_cast<std::int64_t>(hn::Lanes(wide));
  for (std::int64_t i = 0; i < count; i += step) {
    const auto angle = hn::PromoteTo(wide, hn::LoadU(narrow, angles + i));
    const auto turns = hn::Round(hn::Mul(angle, hn::Set(wide, 0.15915494309189535)));
    auto rest = hn::NegMulAdd(turns, hn::Set(wide, 6.283185307179586), angle);
    rest = hn::NegMulAdd(turns, hn::Set(wide, 2.4492935982947064e-16), rest);
    hn::StoreU(hn::DemoteTo(narrow, rest), narrow, angles + i);
  }
}

// Cosine and sine of one token's angles, for all its heads. Buffers hold whole vectors: what lies behind the
// last pair is computed and not used.
void make_rotation(float position, const std::vector<float>& frequencies, float factor, float sign,
                   std::vector<float>& cosine, std::vector<float>& sine) {
  const auto count = static_cast<std::int64_t>(frequencies.size());
  for (std::int64_t i = 0; i < count; i += lanes()) {
    // Rounded to fp32 here, as the models that are loaded were trained with.
    hn::StoreU(hn::Mul(set(position), hn::LoadU(F32Tag(), frequencies.data() + i)), F32Tag(),
               cosine.data() + i);
  }
  reduce_angles(cosine.data(), count);
  for (std::int64_t i = 0; i < count; i += lanes()) {
    const F32 angle = hn::LoadU(F32Tag(), cosine.data() + i);
    hn::StoreU(hn::Mul(hn::Cos(F32Tag(), angle), set(factor)), F32Tag(), cosine.data() + i);
    hn::StoreU(hn::Mul(hn::Sin(F32Tag(), angle), set(factor * sign)), F32Tag(), sine.data() + i);
  }
}

template <typename T>
HWY_INLINE void rotate_head(T* first, T* second, std::int64_t half, const float* cosine, const float* sine) {
  for_each_vector(half, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    const F32 a = vector.load(first + i);
    const F32 b = vector.load(second + i);
    const F32 c = vector.load(cosine + i);
    const F32 s = vector.load(sine + i);
    vector.store(hn::NegMulAdd(b, s, hn::Mul(a, c)), first + i);
    vector.store(hn::MulAdd(a, s, hn::Mul(b, c)), second + i);
  });
}

// Vectors of the first and of the second elements of pairs that lie one behind the other.
HWY_INLINE void load_neighbours(const float* from, F32& first, F32& second) {
  hn::LoadInterleaved2(F32Tag(), from, first, second);
}
HWY_INLINE void store_neighbours(F32 first, F32 second, float* to) {
  hn::StoreInterleaved2(first, second, F32Tag(), to);
}

// A pair of bf16 is a word, the first element its lower half; the upper half of an f32 is its bf16.
HWY_INLINE void load_neighbours(const bf16* from, F32& first, F32& second) {
  const hn::RebindToUnsigned<F32Tag> words;
#if HWY_TARGET == HWY_SCALAR  // where LoadU asks for a word's alignment
  std::uint32_t word = 0;
  std::memcpy(&word, from, sizeof(word));
  const auto pairs = hn::Set(words, word);
#else
  const auto pairs = hn::LoadU(words, reinterpret_cast<const std::uint32_t*>(from));
#endif
  first = hn::BitCast(F32Tag(), hn::ShiftLeft<16>(pairs));
  second = hn::BitCast(F32Tag(), hn::And(pairs, hn::Set(words, 0xFFFF0000U)));
}
HWY_INLINE void store_neighbours(F32 first, F32 second, bf16* to) {
  const hn::RebindToUnsigned<F32Tag> words;
  const auto lower = hn::PromoteTo(words, to_bf16(first));
  const auto upper = hn::ShiftLeft<16>(hn::PromoteTo(words, to_bf16(second)));
#if HWY_TARGET == HWY_SCALAR
  const std::uint32_t word = hn::GetLane(hn::Or(lower, upper));
  std::memcpy(static_cast<void*>(to), &word, sizeof(word));
#else
  hn::StoreU(hn::Or(lower, upper), words, reinterpret_cast<std::uint32_t*>(to));
#endif
}

// One vector of pairs: whole[2 * lanes()].
template <typename T>
HWY_INLINE void rotate_neighbours(T* whole, const float* cosine, const float* sine) {
  F32 a;
  F32 b;
  load_neighbours(whole, a, b);
  const F32 c = hn::LoadU(F32Tag(), cosine);
  const F32 s = hn::LoadU(F32Tag(), sine);
  store_neighbours(hn::NegMulAdd(b, s, hn::Mul(a, c)), hn::MulAdd(a, s, hn::Mul(b, c)), whole);
}

// Cosine and sine hold whole vectors; what lies behind the last pair of `head` is another's.
template <typename T>
HWY_INLINE void rotate_head_of_neighbours(T* head, std::int64_t pairs, const float* cosine,
                                          const float* sine) {
  std::int64_t i = 0;
  for (; i + lanes() <= pairs; i += lanes()) {
    rotate_neighbours(head + 2 * i, cosine + i, sine + i);
  }
  if (i < pairs) {
    HWY_ALIGN T rest[2 * HWY_MAX_BYTES / sizeof(float)] = {};
    const std::size_t bytes = static_cast<std::size_t>(2 * (pairs - i)) * sizeof(T);
    std::memcpy(static_cast<void*>(rest), head + 2 * i, bytes);
    rotate_neighbours(rest, cosine + i, sine + i);
    std::memcpy(static_cast<void*>(head + 2 * i), rest, bytes);
  }
}

template <typename T>
void rotate_heads(T* head, std::int64_t heads, std::int64_t width, RotaryPairs pairs, std::int64_t half,
                  const float* cosine, const float* sine) {
  for (std::int64_t h = 0; h < heads; ++h, head += width) {
    if (pairs == RotaryPairs::halves) {
      rotate_head(head, head + half, half, cosine, sine);
    } else {
      rotate_head_of_neighbours(head, half, cosine, sine);
    }
  }
}

void rotary_range(const TensorView& x, std::span<const std::int32_t> positions,
                  std::span<const float> inverse_frequencies, float factor, float sign,
                  const RotaryLayout& layout, std::int64_t begin, std::int64_t end) {
  const std::int64_t heads = x.size(1);
  const std::int64_t width = x.size(2);
  const auto half = static_cast<std::int64_t>(inverse_frequencies.size());
  const std::int64_t padded = (half + lanes() - 1) / lanes() * lanes();
  std::vector<float> frequencies(static_cast<std::size_t>(padded));
  std::copy(inverse_frequencies.begin(), inverse_frequencies.end(), frequencies.begin());
  std::vector<float> cosine(frequencies.size());
  std::vector<float> sine(frequencies.size());
  for (std::int64_t t = begin; t < end; ++t) {
    const auto position = static_cast<float>(positions[static_cast<std::size_t>(t)]);
    make_rotation(position, frequencies, factor, sign, cosine, sine);
    if (x.dtype() == DType::bf16) {
      rotate_heads(x.row<bf16>(t) + layout.first, heads, width, layout.pairs, half, cosine.data(),
                   sine.data());
    } else {
      rotate_heads(x.row<float>(t) + layout.first, heads, width, layout.pairs, half, cosine.data(),
                   sine.data());
    }
  }
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels {

HWY_EXPORT(rotary_range);

void rotary(TensorView x, std::span<const std::int32_t> positions, std::span<const float> inverse_frequencies,
            float attention_factor, Rotation direction, const RotaryLayout& layout) {
  constexpr std::int64_t kGrain = 16;  // tokens that are worth a thread
  require_float("x", x);
  require(x.rank() == 3, "x must be [T, heads, D]");
  require(static_cast<std::int64_t>(positions.size()) == x.size(0), "{} positions for {} tokens",
          positions.size(), x.size(0));
  const auto turning = static_cast<std::int64_t>(2 * inverse_frequencies.size());
  require(turning <= x.size(2), "{} inverse frequencies for heads of {}", inverse_frequencies.size(),
          x.size(2));
  require(layout.first >= 0 && layout.first <= x.size(2) - turning,
          "{} elements from {} on do not lie in heads of {}", turning, layout.first, x.size(2));
  const float sign = direction == Rotation::forward ? 1.0F : -1.0F;
  parallel_for(x.rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(rotary_range)
    (x, positions, inverse_frequencies, attention_factor, sign, layout, begin, end);
  });
}

}  // namespace expedite::kernels
#endif  // HWY_ONCE
