// A copy that writes past the caches, which on most CPUs is the fastest there is.
#pragma once

#include <cstdint>

namespace expedite::bench {

/// Both aligned to 64 bytes; `bytes` a multiple of 64.
void stream_copy(const void* from, void* to, std::int64_t bytes);

}  // namespace expedite::bench
