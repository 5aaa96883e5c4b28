#include "expedite/cost/kernel_times.h"

#include <algorithm>
#include <cmath>

#include "expedite/base/error.h"

namespace expedite::cost {
namespace {

/// Two neighbouring points of an axis, and how far between them a size lies: below 0 or above 1 outside.
struct Place {
  std::size_t below = 0;
  std::size_t above = 0;
  double share = 0.0;
  double distance = 0.0;  // of the two, in logarithms
};

Place place_of(const GridAxis& axis, double size) {
  const auto logarithm = [&](std::size_t i) { return std::log(static_cast<double>(axis.sizes[i])); };
  if (axis.sizes.size() == 1) {
    return {.share = std::log(size) - logarithm(0)};
  }
  Place place;
  while (place.below + 2 < axis.sizes.size() && static_cast<double>(axis.sizes[place.below + 1]) < size) {
    ++place.below;
  }
  place.above = place.below + 1;
  place.distance = logarithm(place.above) - logarithm(place.below);
  place.share = (std::log(size) - logarithm(place.below)) / place.distance;
  return place;
}

/// The logarithm of the seconds from axis `axis` on, at the points chosen so far, whose number is `index`.
double log_seconds(const KernelTimes& times, const std::vector<Place>& places, std::size_t axis,
                   std::size_t index) {
  if (axis == places.size()) {
    return std::log(times.seconds[index]);
  }
  const Place& place = places[axis];
  const std::size_t base = index * times.axes[axis].sizes.size();
  const double below = log_seconds(times, places, axis + 1, base + place.below);
  if (place.above == place.below) {
    return below + place.share;  // in proportion
  }
  const double above = log_seconds(times, places, axis + 1, base + place.above);
  if (place.share < 0.0) {
    return below + place.share * std::max(above - below, 0.0);  // fewer never take longer
  }
  if (place.share > 1.0) {  // where there is more of everything, nothing gets cheaper any more
    const double proportional = (place.share - 1.0) * place.distance;
    return above + std::max((place.share - 1.0) * (above - below), proportional);
  }
  return below + place.share * (above - below);
}

}  // namespace

double seconds_at(const KernelTimes& times, std::span<const double> sizes) {
  require(sizes.size() == times.axes.size(), "{} sizes for the {} axes of the times of {}", sizes.size(),
          times.axes.size(), times.kernel);
  std::vector<Place> places;
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    require(sizes[axis] >= 0.0 && std::isfinite(sizes[axis]), "{} of {} {}", times.kernel, sizes[axis],
            times.axes[axis].name);
    if (sizes[axis] == 0.0) {
      return 0.0;
    }
    places.push_back(place_of(times.axes[axis], sizes[axis]));
  }
  return std::exp(log_seconds(times, places, 0, 0));
}

}  // namespace expedite::cost
