// A hash of short byte strings for tables in memory: never written to disk.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace expedite::text {

[[nodiscard]] inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

/// Eight bytes, or four, wherever they lie.
template <typename T>
[[nodiscard]] inline std::uint64_t load(const char* at) {
  T value = 0;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

[[nodiscard]] inline std::uint64_t hash_bytes(std::string_view bytes) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
  constexpr std::uint64_t kOther = 0xD6E8FEB86659FD93U;
  const char* at = bytes.data();
  const std::size_t size = bytes.size();
  std::uint64_t hash = size * kOdd;
  if (size >= 8) {
    for (std::size_t i = 0; i + 8 < size; i += 8) {
      hash = mix(hash ^ load<std::uint64_t>(at + i), kOther);
    }
    return mix(hash ^ load<std::uint64_t>(at + size - 8), kOdd);  // the last ones, some of them again
  }
  if (size >= 4) {
    return mix(hash ^ (load<std::uint32_t>(at) << 32U | load<std::uint32_t>(at + size - 4)), kOdd);
  }
  std::uint64_t block = 0;
  for (std::size_t i = 0; i < size; ++i) {
    block = block << 8U | static_cast<unsigned char>(at[i]);
  }
  return mix(hash ^ block, kOdd);
}

}  // namespace expedite::text
