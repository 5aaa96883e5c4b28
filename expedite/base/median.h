// What repeated measurements are summed up by.
#pragma once

#include <vector>

namespace expedite {

/// The middle one, of an even number the upper of the two. Throws Error when there are none.
[[nodiscard]] double median(std::vector<double> values);

/// The mean of all but the smallest and largest sixth: of values that cluster in several places, which a
/// median would choose one of. Throws Error when there are none.
[[nodiscard]] double middle_mean(std::vector<double> values);

}  // namespace expedite
