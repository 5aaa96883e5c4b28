// How long kernels take on a device: measured over a grid of sizes, and between the points by interpolation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/tensor/dtype.h"

namespace expedite::cost {

/// Sizes of one kind that a kernel was measured with.
struct GridAxis {
  std::string name;                 // "rows"
  std::vector<std::int64_t> sizes;  // ascending, at least one

  bool operator==(const GridAxis&) const = default;
};

/// One kernel's seconds at every point of a grid.
struct KernelTimes {
  std::string kernel;           // "rms_norm"
  DType dtype = DType::bf16;    // of what it reads
  std::vector<GridAxis> axes;   // at least one
  std::vector<double> seconds;  // > 0; of all points, the last axis fastest

  bool operator==(const KernelTimes&) const = default;
};

/// Seconds at `sizes`, one for each axis: linear in the logarithms of sizes and seconds between the points,
/// below the first as between the two nearest, beyond the last likewise and at least in proportion. With one
/// point along an axis, in proportion. 0 where a size is 0.
/// Throws Error when there are not as many sizes as axes, or one is negative.
[[nodiscard]] double seconds_at(const KernelTimes& times, std::span<const double> sizes);

}  // namespace expedite::cost
