#include "expedite/plan/expert_reach.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "expedite/base/random.h"

namespace expedite::plan {
namespace {

constexpr int kOrders = 400;
constexpr int kSlowOrders = 2;

/// Experts in the order in which ranks hold them; order 0 is their own.
std::vector<std::int64_t> placed(std::int64_t experts, int order) {
  std::vector<std::int64_t> list(static_cast<std::size_t>(experts));
  std::iota(list.begin(), list.end(), 0);
  if (order > 0) {
    const Philox random(static_cast<std::uint64_t>(order), stream_of("expert_reach"));
    for (std::size_t i = list.size(); i-- > 1;) {
      std::swap(list[i], list[random.bits(i) % (i + 1)]);
    }
  }
  return list;
}

/// The mean over `orders` of placements.
template <typename Value>
double mean_over(std::span<const std::vector<std::int64_t>> orders, const Value& value) {
  double sum = 0.0;
  for (const std::vector<std::int64_t>& order : orders) {
    sum += value(order);
  }
  return sum / static_cast<double>(orders.size());
}

/// Of groups of `size` neighbours, the expected number that a token goes to.
double groups_hit(const cost::Routing& routing, std::span<const std::int64_t> order, std::int64_t size) {
  double sum = 0.0;
  for (std::size_t begin = 0; begin < order.size(); begin += static_cast<std::size_t>(size)) {
    sum += cost::hit_probability(
        routing, order.subspan(begin, std::min(static_cast<std::size_t>(size), order.size() - begin)));
  }
  return sum;
}

double busiest_group(std::span<const double> copies, std::span<const std::int64_t> order, std::int64_t size) {
  double most = 0.0;
  for (std::size_t begin = 0; begin < order.size(); begin += static_cast<std::size_t>(size)) {
    double sum = 0.0;
    for (const std::int64_t expert : order.subspan(begin, static_cast<std::size_t>(size))) {
      sum += copies[static_cast<std::size_t>(expert)];
    }
    most = std::max(most, sum);
  }
  return most;
}

/// Expected largest of `n` independent standard normal numbers: the integral of the probability that it is
/// beyond x, less that it is below -x.
double largest_normal(std::int64_t n) {
  constexpr double kStep = 0.01;
  constexpr double kEnd = 8.0;
  const auto below = [n](double x) {
    return std::pow(0.5 * std::erfc(-x / std::numbers::sqrt2), static_cast<double>(n));
  };
  double sum = 0.0;
  for (double x = 0.5 * kStep; x < kEnd; x += kStep) {
    sum += kStep * (1.0 - below(x) - below(-x));
  }
  return sum;
}

}  // namespace

std::vector<ExpertReach> expert_reaches(const cost::Routing& routing, bool by_expert, std::int64_t most_ranks,
                                        std::int64_t ranks_per_node) {
  const bool even = routing.weights.empty();
  std::vector<std::vector<std::int64_t>> orders;
  for (int order = 0; order < (even || by_expert ? 1 : kOrders); ++order) {
    orders.push_back(placed(routing.experts, even || by_expert ? 0 : order + 1));
  }
  const auto few = std::span(orders).first(std::min<std::size_t>(kSlowOrders, orders.size()));
  std::vector<double> copies;
  for (std::int64_t expert = 0; expert < routing.experts; ++expert) {
    copies.push_back(even && expert > 0 ? copies[0] : cost::hit_probability(routing, std::array{expert}));
  }
  const auto experts = static_cast<double>(routing.experts);
  const double without_return =
      routing.experts > 1 ? std::sqrt((experts - static_cast<double>(routing.topk)) / (experts - 1.0)) : 0.0;
  std::vector<ExpertReach> reaches;
  for (std::int64_t ep = 1; ep <= std::min(routing.experts, most_ranks); ++ep) {
    if (routing.experts % ep != 0) {
      continue;
    }
    const std::int64_t size = routing.experts / ep;
    const double mean = static_cast<double>(routing.topk) / static_cast<double>(ep);
    const auto hit = [&](std::int64_t group) {
      return mean_over(few, [&](const auto& order) { return groups_hit(routing, order, group); });
    };
    const auto busiest = [&](const auto& order) { return busiest_group(copies, order, size); };
    reaches.push_back({.ep = ep,
                       .ranks = hit(size),
                       .nodes = ep > ranks_per_node ? hit(size * ranks_per_node) : 1.0,
                       .busiest = mean_over(orders, busiest) / mean,
                       .chance = ep > 1 ? largest_normal(ep) * without_return : 0.0});
  }
  return reaches;
}

double ExpertReach::busiest_of(double rows) const {
  return 1.0 + std::hypot(busiest - 1.0, chance / std::sqrt(std::max(1.0, rows)));
}

}  // namespace expedite::plan
