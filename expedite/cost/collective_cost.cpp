#include "expedite/cost/collective_cost.h"

#include <algorithm>
#include <cmath>

#include "expedite/base/error.h"

namespace expedite::cost {
namespace {

/// Between two sizes in proportion: a message has a latency and a bandwidth. Beyond the last as between the
/// last two; below the first as there.
double interpolate(const std::vector<CollectiveTime>& times, double bytes, double CollectiveTime::*what) {
  const auto size = [&](std::size_t i) { return static_cast<double>(times[i].bytes); };
  if (times.size() == 1 || bytes <= size(0)) {
    return times.front().*what * std::max(times.size() == 1 ? bytes / size(0) : 1.0, 1.0);
  }
  std::size_t above = 1;
  while (above + 1 < times.size() && size(above) < bytes) {
    ++above;
  }
  const double from = times[above - 1].*what;
  const double slope = (times[above].*what - from) / (size(above) - size(above - 1));
  return from + slope * (bytes - size(above - 1));
}

double unlikeness(const CollectiveTimes& times, std::int64_t nodes, std::int64_t ranks_per_node) {
  const auto ratio = [](std::int64_t a, std::int64_t b) {
    return std::abs(std::log(static_cast<double>(a) / static_cast<double>(b)));
  };
  return ratio(times.nodes, nodes) + ratio(times.ranks_per_node, ranks_per_node);
}

/// Of the measured group that is most like this one.
const std::vector<CollectiveTime>& times_of(const Cluster& cluster, schedule::Collective collective,
                                            std::int64_t nodes, std::int64_t ranks_per_node) {
  const CollectiveTimes* nearest = nullptr;
  for (const CollectiveTimes& times : cluster.collectives) {
    if (times.collective == collective && (times.nodes > 1) == (nodes > 1) &&
        (nearest == nullptr ||
         unlikeness(times, nodes, ranks_per_node) < unlikeness(*nearest, nodes, ranks_per_node))) {
      nearest = &times;
    }
  }
  require(
      nearest != nullptr && !nearest->times.empty(),
      "the cluster {} has no measured {} of groups {}: run expedite probe with as many nodes and ranks as "
      "the job has",
      cluster.name, name_of(collective), nodes > 1 ? "that span nodes" : "inside a node");
  return nearest->times;
}

}  // namespace

CollectiveTime collective_time(const Cluster& cluster, schedule::Collective collective, std::int64_t nodes,
                               std::int64_t ranks_per_node, double bytes) {
  if (nodes * ranks_per_node <= 1) {
    return {};
  }
  const auto& line = times_of(cluster, collective, nodes, ranks_per_node);
  CollectiveTime time{.bytes = std::llround(bytes),
                      .seconds = std::max(interpolate(line, bytes, &CollectiveTime::seconds), 0.0),
                      .busy_seconds = std::max(interpolate(line, bytes, &CollectiveTime::busy_seconds), 0.0)};
  // A share of a core does not grow with the bytes.
  const auto [least, most] = std::ranges::minmax(line, {}, &CollectiveTime::compute_share);
  time.compute_share = std::clamp(interpolate(line, std::min(bytes, static_cast<double>(line.back().bytes)),
                                              &CollectiveTime::compute_share),
                                  least.compute_share, most.compute_share);
  time.busy_start_seconds =
      std::max(interpolate(line, std::min(bytes, static_cast<double>(line.back().bytes)),
                           &CollectiveTime::busy_start_seconds),
               0.0);
  if (std::ranges::none_of(line, [](const CollectiveTime& each) { return each.repeated_seconds == 0.0; })) {
    time.repeated_seconds =
        std::max(interpolate(line, bytes, &CollectiveTime::repeated_seconds), time.seconds);
  }
  return time;
}

double collective_latency(const Cluster& cluster, schedule::Collective collective, std::int64_t nodes,
                          std::int64_t ranks_per_node) {
  return nodes * ranks_per_node <= 1 ? 0.0
                                     : times_of(cluster, collective, nodes, ranks_per_node).front().seconds;
}

}  // namespace expedite::cost
