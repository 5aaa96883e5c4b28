#include "expedite/base/median.h"

#include <algorithm>

#include "expedite/base/error.h"

namespace expedite {

double median(std::vector<double> values) {
  require(!values.empty(), "a median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace expedite
