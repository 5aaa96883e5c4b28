#include "expedite/kernels/memory_speed.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "expedite/base/error.h"
#include "expedite/kernels/parallel.h"
#include "expedite/tensor/memory_pool.h"

#include "expedite/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expedite/kernels/memory_speed.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace expedite::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Reads `bytes`, a multiple of 256, and tells something that depends on all of them.
std::uint64_t read_all(const std::uint8_t* from, std::int64_t bytes) {
  const hn::CappedTag<std::uint8_t, 64> tag;
  const auto width = static_cast<std::int64_t>(hn::Lanes(tag));
  auto a = hn::Zero(tag);
  auto b = a;
  auto c = a;
  auto d = a;
  for (std::int64_t i = 0; i < bytes; i += 4 * width) {
    a = hn::Xor(a, hn::Load(tag, from + i));
    b = hn::Xor(b, hn::Load(tag, from + i + width));
    c = hn::Xor(c, hn::Load(tag, from + i + 2 * width));
    d = hn::Xor(d, hn::Load(tag, from + i + 3 * width));
  }
  return hn::GetLane(hn::Xor(hn::Xor(a, b), hn::Xor(c, d)));
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels {
namespace {

HWY_EXPORT(read_all);

/// Bytes per second of the team when each member calls body(member) `repeats` times; as many that it takes
/// `seconds`.
template <typename Body>
double speed_of(double bytes_per_call, double seconds, const Body& body) {
  for (std::int64_t repeats = 1;; repeats *= 2) {
    std::atomic<std::int64_t> members = 0;
    const auto begin = std::chrono::steady_clock::now();
    parallel_for(team_size(), 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t member = first; member < last; ++member) {
        for (std::int64_t i = 0; i < repeats; ++i) {
          body(member);
        }
        ++members;
      }
    });
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (taken >= seconds) {
      return bytes_per_call * static_cast<double>(repeats * members) / taken;
    }
  }
}

}  // namespace

MemorySpeed memory_speed(std::int64_t bytes_per_thread, double seconds) {
  constexpr std::int64_t kGranule = 512;  // two halves of whole vectors
  require(bytes_per_thread >= kGranule, "a working set of {} bytes; at least {} are needed", bytes_per_thread,
          kGranule);
  const std::int64_t bytes = bytes_per_thread / kGranule * kGranule;
  MemoryPool pool;
  const Buffer buffer = pool.allocate(bytes * team_size(), MemoryCategory::workspace);
  auto* const data = static_cast<std::byte*>(buffer.data());
  parallel_for(team_size(), 1, [&](std::int64_t first, std::int64_t last) {
    std::memset(data + first * bytes, 1, static_cast<std::size_t>((last - first) * bytes));
  });
  std::atomic<std::uint64_t> seen = 0;  // keeps the reads from being left out
  MemorySpeed speed;
  speed.read_bytes_per_s = speed_of(static_cast<double>(bytes), seconds, [&](std::int64_t member) {
    const auto* const from = reinterpret_cast<const std::uint8_t*>(data + member * bytes);
    seen.fetch_xor(HWY_DYNAMIC_DISPATCH(read_all)(from, bytes), std::memory_order_relaxed);
  });
  speed.copy_bytes_per_s = speed_of(static_cast<double>(bytes), seconds, [&](std::int64_t member) {
    std::byte* const from = data + member * bytes;
    std::memcpy(from + bytes / 2, from, static_cast<std::size_t>(bytes / 2));
    std::atomic_signal_fence(std::memory_order_seq_cst);  // a copy that nobody reads is a copy all the same
  });
  return speed;
}

}  // namespace expedite::kernels
#endif  // HWY_ONCE
