// How far the clocks of two ranks are apart, so that their traces line up.
#pragma once

#include <cstdint>

#include "expedite/comm/communicator.h"

namespace expedite::comm {

/// std::chrono::steady_clock now, in nanoseconds.
[[nodiscard]] std::int64_t steady_nanoseconds();

/// Nanoseconds to add to this rank's steady clock to get rank 0's, by Cristian's method: the round trip that
/// took the least time bounds the error to half of it. Collective over `communicator`.
[[nodiscard]] std::int64_t estimate_clock_offset(const Communicator& communicator, int round_trips = 16);

}  // namespace expedite::comm
