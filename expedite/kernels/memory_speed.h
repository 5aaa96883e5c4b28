// How fast this rank's cores read and copy data that lies in a cache, or in memory.
#pragma once

#include <cstdint>

namespace expedite::kernels {

struct MemorySpeed {
  double read_bytes_per_s = 0.0;
  double copy_bytes_per_s = 0.0;  // with memcpy; bytes read and bytes written both count
};

/// Of the calling thread's OpenMP team, all of it at work, each thread going over `bytes_per_thread` of its
/// own again and again: the working set decides which cache is measured. For reading and for copying at
/// least `seconds` each. Throws Error for less than 512 bytes.
[[nodiscard]] MemorySpeed memory_speed(std::int64_t bytes_per_thread, double seconds);

}  // namespace expedite::kernels
