#include "bench/stream_copy.h"

#include <cstdint>

#include "expedite/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/stream_copy.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace expedite::bench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void copy_vectors(const std::uint8_t* from, std::uint8_t* to, std::int64_t bytes) {
  const hn::CappedTag<std::uint8_t, 64> tag;
  const auto width = static_cast<std::int64_t>(hn::Lanes(tag));
  for (std::int64_t i = 0; i < bytes; i += width) {
    hn::Stream(hn::Load(tag, from + i), tag, to + i);
  }
  hwy::FlushStream();
}

}  // namespace expedite::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::bench {

HWY_EXPORT(copy_vectors);

void stream_copy(const void* from, void* to, std::int64_t bytes) {
  HWY_DYNAMIC_DISPATCH(copy_vectors)
  (static_cast<const std::uint8_t*>(from), static_cast<std::uint8_t*>(to), bytes);
}

}  // namespace expedite::bench
#endif  // HWY_ONCE
