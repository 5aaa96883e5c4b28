// How long a matrix product takes on a device whose rates were measured.
#pragma once

#include <cstdint>

#include "expedite/cost/cluster.h"

namespace expedite::cost {

/// Seconds of [m, k] · [k, n] from the measured shapes whose n and k are nearest, between measured numbers of
/// rows by interpolation of the rate over log m. Without measured shapes, at the peak. Throws Error when the
/// device has no rates of the type.
[[nodiscard]] double matmul_seconds(const Device& device, DType dtype, std::int64_t m, std::int64_t n,
                                    std::int64_t k);

}  // namespace expedite::cost
