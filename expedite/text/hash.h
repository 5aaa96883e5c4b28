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

[[nodiscard]] inline std::uint64_t hash_bytes(std::string_view bytes) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
  constexpr std::uint64_t kOther = 0xD6E8FEB86659FD93U;
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t hash = left * kOdd;
  while (left >= 8) {
    std::uint64_t block = 0;
    std::memcpy(&block, at, 8);
    hash = mix(hash ^ block, kOther);
    at += 8;
    left -= 8;
  }
  std::uint64_t block = 0;
  for (std::size_t i = 0; i < left; ++i) {
    block = block << 8U | static_cast<unsigned char>(at[i]);
  }
  return mix(hash ^ block, kOdd);
}

}  // namespace expedite::text
