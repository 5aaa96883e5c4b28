// Random numbers that depend only on (seed, stream, index), never on who draws them or in what order,
// so that initial weights and shuffles are the same for every layout of ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace expedite {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
class Philox {
 public:
  Philox(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  /// Four 32-bit words for counter `index`.
  [[nodiscard]] std::array<std::uint32_t, 4> block(std::uint64_t index) const;
  /// 64 random bits for `index`.
  [[nodiscard]] std::uint64_t bits(std::uint64_t index) const;
  /// Uniform in [0, 1).
  [[nodiscard]] double uniform(std::uint64_t index) const;
  /// Standard normal (Box-Muller on the words of one counter).
  [[nodiscard]] double normal(std::uint64_t index) const;

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
};

/// A stream number made from a name (FNV-1a), for example a parameter's.
[[nodiscard]] std::uint64_t stream_of(std::string_view name);

/// A pseudo-random permutation of [0, n) that needs no memory: maps `index` under `key`.
/// A Feistel network over the next power of four, walked until it lands inside. Requires 0 <= index < n.
[[nodiscard]] std::uint64_t permuted_index(std::uint64_t index, std::uint64_t n, std::uint64_t key);

}  // namespace expedite
