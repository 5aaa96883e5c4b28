#include "expedite/cost/routing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "expedite/base/error.h"

namespace expedite::cost {
namespace {

void check(const Routing& routing) {
  require(routing.experts >= 1 && routing.topk >= 1 && routing.topk <= routing.experts,
          "a routing to {} of {} experts; at least one and at most all can be chosen", routing.topk,
          routing.experts);
  require(routing.weights.empty() || routing.weights.size() == static_cast<std::size_t>(routing.experts),
          "{} routing weights for {} experts", routing.weights.size(), routing.experts);
  for (const double weight : routing.weights) {
    require(std::isfinite(weight) && weight > 0.0, "a routing weight of {}; weights are above 0", weight);
  }
}

/// The integral of `function` over [0, 1] by the double exponential rule (Takahashi & Mori 1974), which does
/// not mind steep ends.
template <typename Function>
double integrate(const Function& function) {
  constexpr int kNodes = 60;  // on either side
  constexpr double kStep = 0.055;
  double sum = 0.0;
  for (int i = -kNodes; i <= kNodes; ++i) {
    const double x = kStep * i;
    const double inner = std::numbers::pi / 2.0 * std::sinh(x);
    const double point = 1.0 / (1.0 + std::exp(-2.0 * inner));
    const double slope = std::numbers::pi / 4.0 * std::cosh(x) / (std::cosh(inner) * std::cosh(inner));
    sum += kStep * slope * function(point);
  }
  return sum;
}

/// The probability that at least `wanted` of independent events happen.
double at_least(std::span<const double> probabilities, std::int64_t wanted, std::vector<double>& fewer) {
  fewer.assign(static_cast<std::size_t>(wanted), 0.0);  // fewer[j]: that j of those seen so far happen
  fewer[0] = 1.0;
  for (const double probability : probabilities) {
    for (std::size_t j = fewer.size(); j-- > 1;) {
      fewer[j] += probability * (fewer[j - 1] - fewer[j]);
    }
    fewer[0] *= 1.0 - probability;
  }
  return 1.0 - std::accumulate(fewer.begin(), fewer.end(), 0.0);
}

double even_miss_probability(const Routing& routing, std::int64_t group) {
  double miss = 1.0;
  for (std::int64_t drawn = 0; drawn < routing.topk; ++drawn) {
    miss *= static_cast<double>(std::max<std::int64_t>(routing.experts - group - drawn, 0)) /
            static_cast<double>(routing.experts - drawn);
  }
  return miss;
}

/// The group's first clock rings at a time t with probability density W e^(-W t), W its weight; by then a
/// clock of weight w has rung with probability 1 - e^(-w t). With u = e^(-W t), that is 1 - u^(w / W).
double weighted_miss_probability(const Routing& routing, const std::vector<bool>& in_group) {
  double group_weight = 0.0;
  std::vector<double> others;
  for (std::size_t expert = 0; expert < in_group.size(); ++expert) {
    if (in_group[expert]) {
      group_weight += routing.weights[expert];
    } else {
      others.push_back(routing.weights[expert]);
    }
  }
  if (static_cast<std::int64_t>(others.size()) < routing.topk) {
    return 0.0;
  }
  std::vector<double> rung(others.size());
  std::vector<double> scratch;
  return integrate([&](double u) {
    const double time = -std::log(u) / group_weight;
    std::ranges::transform(others, rung.begin(), [&](double weight) { return -std::expm1(-weight * time); });
    return at_least(rung, routing.topk, scratch);
  });
}

}  // namespace

std::vector<double> zipf_weights(std::int64_t experts, double exponent) {
  std::vector<double> weights;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    weights.push_back(std::pow(static_cast<double>(expert + 1), -exponent));
  }
  return weights;
}

double hit_probability(const Routing& routing, std::span<const std::int64_t> group) {
  check(routing);
  std::vector<bool> in_group(static_cast<std::size_t>(routing.experts), false);
  for (const std::int64_t expert : group) {
    require(expert >= 0 && expert < routing.experts && !in_group[static_cast<std::size_t>(expert)],
            "expert {} is not one of {}, or there twice", expert, routing.experts);
    in_group[static_cast<std::size_t>(expert)] = true;
  }
  if (group.empty()) {
    return 0.0;
  }
  const double miss = routing.weights.empty()
                          ? even_miss_probability(routing, static_cast<std::int64_t>(group.size()))
                          : weighted_miss_probability(routing, in_group);
  return std::clamp(1.0 - miss, 0.0, 1.0);
}

Spread expected_spread(const Routing& routing, std::span<const int> rank_of_expert,
                       std::span<const int> node_of_rank) {
  const std::size_t ranks = node_of_rank.size();
  require(ranks > 0, "a placement on no ranks");
  require(rank_of_expert.size() == static_cast<std::size_t>(routing.experts),
          "a placement of {} experts for a routing to {}", rank_of_expert.size(), routing.experts);
  int nodes = 0;
  for (const int node : node_of_rank) {
    require(node >= 0 && static_cast<std::size_t>(node) < ranks, "node {} of {} ranks", node, ranks);
    nodes = std::max(nodes, node + 1);
  }
  std::vector<std::vector<std::int64_t>> of_rank(ranks);
  std::vector<std::vector<std::int64_t>> of_node(static_cast<std::size_t>(nodes));
  Spread spread{.copies = std::vector<double>(ranks, 0.0), .rank_hit = {}, .node_hit = {}};
  for (std::int64_t expert = 0; expert < routing.experts; ++expert) {
    const int rank = rank_of_expert[static_cast<std::size_t>(expert)];
    require(rank >= 0 && static_cast<std::size_t>(rank) < ranks, "expert {} is on rank {} of {}", expert,
            rank, ranks);
    const auto place = static_cast<std::size_t>(rank);
    of_rank[place].push_back(expert);
    of_node[static_cast<std::size_t>(node_of_rank[place])].push_back(expert);
    spread.copies[place] += hit_probability(routing, std::array{expert});
  }
  for (const auto& group : of_rank) {
    spread.rank_hit.push_back(hit_probability(routing, group));
  }
  for (const auto& group : of_node) {
    spread.node_hit.push_back(hit_probability(routing, group));
  }
  return spread;
}

}  // namespace expedite::cost
