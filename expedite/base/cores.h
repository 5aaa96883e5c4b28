// How many cores there are to compute on, and how large their caches are.
#pragma once

#include <bitset>
#include <cstdint>
#include <vector>

namespace expedite {

struct Cores {
  int machine = 1;  // of this machine (or of the part that its container may use), at least 1
  int bound = 1;    // of those, the ones that this process may run on
};

/// Cores, not hardware threads: two threads of one core share its arithmetic. Throws Error when hwloc cannot
/// tell.
[[nodiscard]] Cores count_cores();

/// The hardware threads that this process may run on, by number; none when the system does not tell.
using Processors = std::bitset<1024>;
[[nodiscard]] Processors allowed_processors();

/// A level of the caches that hold data.
struct CacheSize {
  int level = 1;
  std::int64_t bytes = 0;
  int cores = 1;  // that share one such cache
};

/// The machine's first cache of each level, smallest level first; levels whose size the system does not tell
/// are left out. Throws Error as count_cores does.
[[nodiscard]] std::vector<CacheSize> cache_sizes();

/// Seconds that the calling thread has run on a core so far: not those in which others ran on it.
[[nodiscard]] double thread_cpu_seconds();

/// Of the machine's memory, as this process sees it.
[[nodiscard]] std::int64_t machine_memory_bytes();

}  // namespace expedite
