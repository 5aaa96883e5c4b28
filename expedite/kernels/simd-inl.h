// What vector kernels share: f32 vectors read from and written to f32 or bf16 memory, rows cut into whole
// vectors and a remainder, sums, and exp. Compiled once per instruction set: include it after
// hwy/foreach_target.h and hwy/highway.h.

// Highway's include guard for code that is seen once per target.
#if defined(EXPEDITE_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPEDITE_KERNELS_SIMD_INL_H_
#undef EXPEDITE_KERNELS_SIMD_INL_H_
#else
#define EXPEDITE_KERNELS_SIMD_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "expedite/kernels/cpu.h"
#include "expedite/tensor/dtype.h"

// Goes between the parameters and the body of a lambda that holds vector code: without the first attribute
// it is compiled for the oldest CPU, without the second its vectors travel through memory.
#ifndef EXPEDITE_SIMD_LAMBDA
#define EXPEDITE_SIMD_LAMBDA HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace expedite::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32Tag = hn::ScalableTag<float>;
using F32 = hn::Vec<F32Tag>;
using Half = hn::Rebind<std::uint16_t, F32Tag>;  // as many 16-bit lanes
using HalfVector = hn::Vec<Half>;

HWY_INLINE std::int64_t lanes() {
  return static_cast<std::int64_t>(hn::Lanes(F32Tag()));
}
HWY_INLINE F32 set(float value) {
  return hn::Set(F32Tag(), value);
}
HWY_INLINE F32 zero() {
  return hn::Zero(F32Tag());
}

HWY_INLINE const std::uint16_t* half_words(const bf16* from) {
  return reinterpret_cast<const std::uint16_t*>(from);
}
HWY_INLINE std::uint16_t* half_words(bf16* to) {
  return reinterpret_cast<std::uint16_t*>(to);
}

HWY_INLINE F32 from_bf16(HalfVector words) {
#if HWY_TARGET == HWY_AVX3
  // One permutation that clears the lower halves on its way, where widening and shifting would be two.
  HWY_ALIGN static constexpr std::uint16_t kSource[32] = {
      0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15};
  const __m512i spread = _mm512_maskz_permutexvar_epi16(0xAAAAAAAA, _mm512_load_si512(kSource),
                                                        _mm512_castsi256_si512(words.raw));
  return F32{_mm512_castsi512_ps(spread)};
#else
  const hn::RebindToUnsigned<F32Tag> wide;
  return hn::BitCast(F32Tag(), hn::ShiftLeft<16>(hn::PromoteTo(wide, words)));
#endif
}

// Rounds to nearest even, as bf16(float) does; Highway 1.0's own conversion truncates. A NaN must be quiet,
// as all that arithmetic returns are: one whose payload lies in its lower half would be cut to infinity.
HWY_INLINE HalfVector to_bf16_exactly(F32 value) {
  const hn::RebindToUnsigned<F32Tag> wide;
  const auto word = hn::BitCast(wide, value);
  const auto odd = hn::TestBit(word, hn::Set(wide, 0x10000));
  const auto bias = hn::IfThenElse(odd, hn::Set(wide, 0x8000), hn::Set(wide, 0x7FFF));
  // The carry may run through a NaN's payload into its sign: a NaN is only cut.
  const auto nan = hn::RebindMask(wide, hn::IsNaN(value));
  const auto result = hn::IfThenElse(nan, word, hn::Add(word, bias));
#if HWY_TARGET == HWY_SCALAR
  return hn::DemoteTo(Half(), hn::BitCast(hn::RebindToSigned<F32Tag>(), hn::ShiftRight<16>(result)));
#else
  const hn::Repartition<std::uint16_t, F32Tag> words;
  return hn::LowerHalf(Half(), hn::ConcatOdd(words, hn::BitCast(words, result), hn::BitCast(words, result)));
#endif
}

// The same, but where the CPU rounds by itself, subnormal results become zero: for activations and gradients.
HWY_INLINE HalfVector to_bf16(F32 value) {
#if HWY_TARGET == HWY_AVX3
  if (kHasAvx512Bf16) {  // one instruction, which Highway 1.0 does not know, instead of six
    __m256i words;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(words) : "v"(value.raw));
    return HalfVector{words};
  }
#endif
  return to_bf16_exactly(value);
}

struct PartVector;

/// Reads and writes whole vectors.
struct WholeVector {
  using Part = PartVector;
  static HWY_INLINE F32 load(const float* from) { return hn::LoadU(F32Tag(), from); }
  static HWY_INLINE F32 load(const bf16* from) { return from_bf16(hn::LoadU(Half(), half_words(from))); }
  static HWY_INLINE void store(F32 value, float* to) { hn::StoreU(value, F32Tag(), to); }
  static HWY_INLINE void store(F32 value, bf16* to) { hn::StoreU(to_bf16(value), Half(), half_words(to)); }
  /// `value` in the lanes that hold elements (here all), `other` in the rest.
  static HWY_INLINE F32 select(F32 value, F32 /*other*/) { return value; }
};

/// Reads whole vectors and writes them past the caches, to places aligned to a vector. Whoever uses it calls
/// hwy::FlushStream() before another thread may read.
struct StreamedVector : WholeVector {
  static HWY_INLINE void store(F32 value, float* to) { hn::Stream(value, F32Tag(), to); }
  static HWY_INLINE void store(F32 value, bf16* to) { hn::Stream(to_bf16(value), Half(), half_words(to)); }
};

/// Reads and writes the first `count` lanes, touching no memory behind them; the other lanes read as zero.
struct PartVector {
  std::size_t count;

  HWY_INLINE F32 load(const float* from) const {
    return hn::MaskedLoad(hn::FirstN(F32Tag(), count), F32Tag(), from);
  }
  HWY_INLINE F32 load(const bf16* from) const {
    // AVX2 has no masked access to 16-bit elements.
    HWY_ALIGN std::uint16_t words[HWY_MAX_BYTES / sizeof(float)] = {};
    std::memcpy(words, from, count * sizeof(bf16));
    return from_bf16(hn::Load(Half(), words));
  }
  HWY_INLINE void store(F32 value, float* to) const {
    hn::BlendedStore(value, hn::FirstN(F32Tag(), count), F32Tag(), to);
  }
  HWY_INLINE void store(F32 value, bf16* to) const {
    HWY_ALIGN std::uint16_t words[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(to_bf16(value), Half(), words);
    std::memcpy(static_cast<void*>(to), words, count * sizeof(bf16));
  }
  HWY_INLINE F32 select(F32 value, F32 other) const {
    return hn::IfThenElse(hn::FirstN(F32Tag(), count), value, other);
  }
};

/// For what is stored in checkpoints: the same bits on every CPU.
struct ExactPartVector : PartVector {
  HWY_INLINE void store(F32 value, float* to) const { PartVector::store(value, to); }
  HWY_INLINE void store(F32 value, bf16* to) const {
    HWY_ALIGN std::uint16_t words[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(to_bf16_exactly(value), Half(), words);
    std::memcpy(static_cast<void*>(to), words, count * sizeof(bf16));
  }
};
struct ExactVector : WholeVector {
  using Part = ExactPartVector;
  static HWY_INLINE void store(F32 value, float* to) { hn::StoreU(value, F32Tag(), to); }
  static HWY_INLINE void store(F32 value, bf16* to) {
    hn::StoreU(to_bf16_exactly(value), Half(), half_words(to));
  }
};

/// Calls step(offset, Whole or its Part) for consecutive vectors that cover [0, count).
template <typename Whole = WholeVector, typename Step>
HWY_INLINE void for_each_vector(std::int64_t count, const Step& step) {
  const std::int64_t width = lanes();
  std::int64_t i = 0;
  for (; i + width <= count; i += width) {
    step(i, Whole{});
  }
  if (i < count) {
    step(i, typename Whole::Part{static_cast<std::size_t>(count - i)});
  }
}

/// A sum over a row: step(offset, vector, sum) returns sum with a vector's elements added, whose lanes behind
/// the row's end must add nothing. Four sums run side by side to hide the latency of additions; which element
/// goes into which depends on `count` alone.
template <typename Whole = WholeVector, typename Step>
HWY_INLINE float fold_vectors(std::int64_t count, const Step& step) {
  const std::int64_t width = lanes();
  F32 sum0 = zero();
  F32 sum1 = zero();
  F32 sum2 = zero();
  F32 sum3 = zero();
  std::int64_t i = 0;
  for (; i + 4 * width <= count; i += 4 * width) {
    sum0 = step(i, Whole{}, sum0);
    sum1 = step(i + width, Whole{}, sum1);
    sum2 = step(i + 2 * width, Whole{}, sum2);
    sum3 = step(i + 3 * width, Whole{}, sum3);
  }
  for (; i + width <= count; i += width) {
    sum0 = step(i, Whole{}, sum0);
  }
  if (i < count) {
    sum1 = step(i, PartVector{static_cast<std::size_t>(count - i)}, sum1);
  }
  return hn::GetLane(hn::SumOfLanes(F32Tag(), hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

/// The sum over a row of step(offset, vector), each an F32 whose lanes behind the row's end are zero.
template <typename Whole = WholeVector, typename Step>
HWY_INLINE float sum_over_vectors(std::int64_t count, const Step& step) {
  return fold_vectors<Whole>(count, [&](std::int64_t i, const auto& vector, F32 sum)
                                        EXPEDITE_SIMD_LAMBDA { return hn::Add(sum, step(i, vector)); });
}

/// to += from, in fp32 and rounded once to To.
template <typename From, typename To>
HWY_INLINE void accumulate_row(const From* from, To* to, std::int64_t count) {
  for_each_vector(count, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    vector.store(hn::Add(vector.load(to + i), vector.load(from + i)), to + i);
  });
}

/// Largest element of a row of at least one; a NaN in it may be overlooked.
HWY_INLINE float max_over_row(const float* row, std::int64_t count) {
  F32 largest = set(row[0]);
  for_each_vector(count, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    largest = hn::Max(largest, vector.select(vector.load(row + i), largest));
  });
  return hn::GetLane(hn::MaxOfLanes(F32Tag(), largest));
}

/// max(x, bound) and min(x, bound), of which NaN comes out as NaN.
HWY_INLINE F32 at_least(F32 x, float bound) {
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Lt(x, set(bound)), set(bound), x);
#else
  return hn::Max(set(bound), x);  // x86 returns its second operand if either is NaN
#endif
}
HWY_INLINE F32 at_most(F32 x, float bound) {
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Gt(x, set(bound)), set(bound), x);
#else
  return hn::Min(set(bound), x);
#endif
}

/// exp(-x) for x in [-88, 87], anything outside; NaN stays NaN. For an f32 Result to about 2 units in the
/// last place, for one that is rounded to bf16 to 6e-6. The negative, because sigmoids need it and a sign
/// costs an instruction.
template <typename Result>
HWY_INLINE F32 exp_of_negative(F32 x) {
  const hn::RebindToSigned<F32Tag> integer;
  // -x = n ln 2 + r with |r| <= ln(2) / 2. Adding 1.5 * 2^23 leaves the integer n in the low bits.
  const F32 shift = set(12582912.0F);
  const F32 shifted = hn::NegMulAdd(x, set(1.44269504F), shift);
  const F32 n = hn::Sub(shifted, shift);
  // 1 + r + r^2 q(r), with q the minimax fit of exp's relative error on that interval.
  F32 r;
  F32 p;
  if constexpr (sizeof(Result) == sizeof(bf16)) {
    r = hn::NegMulSub(n, set(0.693147182F), x);
    p = hn::MulAdd(set(4.12773676e-2F), r, set(1.67536005e-1F));
    p = hn::MulAdd(p, r, set(5.0005126e-1F));
  } else {
    r = hn::NegMulSub(n, set(0.693145752F), x);  // ln 2 in two parts, the first with 16 bits
    r = hn::NegMulAdd(n, set(1.42860677e-6F), r);
    p = hn::MulAdd(set(8.31250101e-3F), r, set(4.18903306e-2F));
    p = hn::MulAdd(p, r, set(1.66671157e-1F));
    p = hn::MulAdd(p, r, set(4.99992311e-1F));
  }
  p = hn::MulAdd(p, r, set(1.0F));
  p = hn::MulAdd(p, r, set(1.0F));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(integer, shifted));
  return hn::BitCast(F32Tag(), hn::Add(hn::BitCast(integer, p), exponent));
}

/// exp(x) to about 2 units in the last place for x in [-87, 88]; 0 below, exp(88) above; NaN stays NaN.
HWY_INLINE F32 fast_exp(F32 x) {
  const F32 result = exp_of_negative<float>(hn::Neg(at_most(x, 88.0F)));
  return hn::IfThenElse(hn::Lt(x, set(-87.0F)), zero(), result);
}

/// 1 / x for x in [2^-120, 2^120], to about 1 unit in the last place for results kept as f32, and to 14 bits,
/// 6 more than they keep, for those rounded to bf16.
template <typename Result>
HWY_INLINE F32 fast_reciprocal(F32 x) {
#if HWY_TARGET == HWY_AVX3
  const F32 guess = hn::ApproximateReciprocal(x);  // 14 bits
  if constexpr (sizeof(Result) == sizeof(bf16)) {
    return guess;
  } else {
    return hn::Mul(guess, hn::NegMulAdd(x, guess, set(2.0F)));  // a Newton step, still faster than dividing
  }
#else
  return hn::Div(set(1.0F), x);  // elsewhere the guess has only 8 to 12 bits
#endif
}

/// Where the sigmoid of an f32 is as good as zero. An x that meets its own sigmoid is bounded by this, so
/// that infinity is not multiplied by zero.
inline constexpr float kSigmoidBound = -80.0F;

/// 1 / (1 + exp(-x)) for x >= kSigmoidBound, as exact as a Result of f32 or bf16 asks for; NaN stays NaN.
template <typename Result>
HWY_INLINE F32 fast_sigmoid(F32 x) {
  return fast_reciprocal<Result>(hn::Add(set(1.0F), exp_of_negative<Result>(at_most(x, 80.0F))));
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
