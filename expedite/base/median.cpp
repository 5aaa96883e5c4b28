#include "expedite/base/median.h"

#include <algorithm>
#include <numeric>

#include "expedite/base/error.h"

namespace expedite {

double median(std::vector<double> values) {
  require(!values.empty(), "a median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double middle_mean(std::vector<double> values) {
  require(!values.empty(), "a mean of nothing");
  std::ranges::sort(values);
  const auto left_out = static_cast<std::ptrdiff_t>(values.size() / 6);
  const double sum = std::accumulate(values.begin() + left_out, values.end() - left_out, 0.0);
  return sum / static_cast<double>(std::ssize(values) - 2 * left_out);
}

}  // namespace expedite
