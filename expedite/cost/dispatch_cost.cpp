#include "expedite/cost/dispatch_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "expedite/base/error.h"

namespace expedite::cost {
namespace {

using schedule::Dispatcher;

constexpr double kAsFast = 0.03;  // a difference that no prediction is sure of
// Two levels cost each chunk what is not counted here: ranks of a node wait for each other three times more,
// and add up rows once more. Measured at 5 to 15 ms of 40 to 200.
constexpr double kWorthTwoLevels = 0.75;
constexpr std::array kFlat = {Dispatcher::alltoall, Dispatcher::zero_redundancy};
constexpr std::array kHierarchical = {Dispatcher::hierarchical, Dispatcher::hierarchical_dedup};

/// What each rank sends and receives at one level in one direction, dispatch or combine.
struct Traffic {
  explicit Traffic(std::size_t ranks) : sent(ranks, 0.0), received(ranks, 0.0), messages(ranks, 0.0) {}

  void add(std::size_t from, std::size_t to, double bytes) {
    sent[from] += bytes;
    received[to] += bytes;
    messages[from] += bytes > 0.0 ? 1.0 : 0.0;
  }
  [[nodiscard]] double bytes() const { return std::accumulate(sent.begin(), sent.end(), 0.0); }

  std::vector<double> sent;
  std::vector<double> received;
  std::vector<double> messages;
};

double largest(const std::vector<double>& values) {
  return *std::ranges::max_element(values);
}

class DispatchCalculation {
 public:
  DispatchCalculation(const Cluster& cluster, const DispatchCase& layer)
      : cluster_(cluster),
        layer_(layer),
        spread_(expected_spread(layer.routing, layer.rank_of_expert, layer.node_of_rank)),
        ranks_(layer.node_of_rank.size()),
        nodes_(spread_.node_hit.size()),
        ranks_of_node_(nodes_),
        local_(ranks_),
        token_bytes_(static_cast<double>(layer.tokens) *
                     static_cast<double>(layer.hidden * layer.element_bytes)) {
    require(layer.tokens >= 0 && layer.hidden >= 1 && layer.element_bytes >= 1 && layer.chunks >= 1,
            "{} tokens of {} elements of {} bytes in {} chunks: sizes and chunks start at 1", layer.tokens,
            layer.hidden, layer.element_bytes, layer.chunks);
    require(!cluster.devices.empty(), "the cluster {} has no device", cluster.name);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      auto& ranks = ranks_of_node_[node_of(rank)];
      local_[rank] = ranks.size();
      ranks.push_back(rank);
    }
    for (std::size_t node = 0; node < nodes_; ++node) {
      require(!ranks_of_node_[node].empty(), "no rank is on node {} of {}", node, nodes_);
    }
  }

  /// Every pair of ranks by itself; rows(to) is what one token is worth on its way to a rank.
  [[nodiscard]] DispatchCost flat(const std::vector<double>& rows) const {
    Traffic inter(ranks_);
    Traffic intra(ranks_);
    for (std::size_t from = 0; from < ranks_; ++from) {
      for (std::size_t to = 0; to < ranks_; ++to) {
        if (from != to) {
          (node_of(from) == node_of(to) ? intra : inter).add(from, to, token_bytes_ * rows[to]);
        }
      }
    }
    DispatchCost cost{.inter_bytes = 2.0 * inter.bytes(),
                      .intra_bytes = 2.0 * intra.bytes(),
                      .inter_seconds = 2.0 * link_seconds(inter, kInterNode),
                      .intra_seconds = 2.0 * link_seconds(intra, kIntraNode)};
    cost.seconds = std::max(cost.inter_seconds, cost.intra_seconds);
    return cost;
  }

  /// Between nodes to the rank of the same place, then inside. A token goes to a node with probability
  /// `wanted`.
  [[nodiscard]] DispatchCost hierarchical(const std::vector<double>& wanted) const {
    Traffic inter(ranks_);
    std::vector<double> sources(ranks_, 1.0);  // ranks whose tokens arrive at a rank, itself among them
    for (std::size_t from = 0; from < ranks_; ++from) {
      for (std::size_t node = 0; node < nodes_; ++node) {
        if (node != node_of(from)) {
          const auto& there = ranks_of_node_[node];
          const std::size_t to = there[local_[from] % there.size()];
          inter.add(from, to, token_bytes_ * wanted[node]);
          sources[to] += 1.0;
        }
      }
    }
    Traffic intra(ranks_);
    for (const auto& ranks : ranks_of_node_) {
      for (const std::size_t holder : ranks) {
        for (const std::size_t reader : ranks) {
          if (holder != reader) {
            intra.add(holder, reader, token_bytes_ * sources[holder] * spread_.rank_hit[reader]);
          }
        }
      }
    }
    DispatchCost cost{.inter_bytes = 2.0 * inter.bytes(),
                      .intra_bytes = 2.0 * intra.bytes(),
                      .inter_seconds = 2.0 * link_seconds(inter, kInterNode),
                      .intra_seconds = copy_seconds(intra)};
    cost.seconds = std::max(cost.inter_seconds, cost.intra_seconds) +
                   std::min(cost.inter_seconds, cost.intra_seconds) / static_cast<double>(layer_.chunks);
    return cost;
  }

  [[nodiscard]] const Spread& spread() const { return spread_; }
  [[nodiscard]] std::size_t nodes() const { return nodes_; }

 private:
  [[nodiscard]] std::size_t node_of(std::size_t rank) const {
    return static_cast<std::size_t>(layer_.node_of_rank[rank]);
  }

  [[nodiscard]] const Link& link(std::string_view name) const {
    const Link* const found = cluster_.find_link(name);
    require(found != nullptr,
            "the cluster {} has no measured link {}; run expedite probe with the ranks of this job",
            cluster_.name, name);
    return *found;
  }

  /// Of one direction. A node's ranks share what was measured with all of them at work; a rank alone has no
  /// more than a pair alone.
  [[nodiscard]] double link_seconds(const Traffic& traffic, std::string_view name) const {
    if (traffic.bytes() <= 0.0) {
      return 0.0;
    }
    const Link& level = link(name);
    // Noise may have made a pair look slower alone than in company.
    const double rank_bandwidth = std::max(level.pair_bandwidth_bytes_per_s, level.bandwidth_bytes_per_s);
    double bulk = std::max(largest(traffic.sent), largest(traffic.received)) / rank_bandwidth;
    const double node_bandwidth = level.bandwidth_bytes_per_s * static_cast<double>(cluster_.ranks_per_node);
    for (const auto& ranks : ranks_of_node_) {
      double sent = 0.0;
      double received = 0.0;
      for (const std::size_t rank : ranks) {
        sent += traffic.sent[rank];
        received += traffic.received[rank];
      }
      bulk = std::max(bulk, std::max(sent, received) / node_bandwidth);
    }
    return bulk + static_cast<double>(layer_.chunks) *
                      (level.latency_s + largest(traffic.messages) / level.message_rate_per_s);
  }

  /// Of both directions: the readers copy in dispatch, the holders in combine.
  [[nodiscard]] double copy_seconds(const Traffic& traffic) const {
    if (traffic.bytes() <= 0.0) {
      return 0.0;
    }
    constexpr double kReadAndWritten = 2.0;
    return kReadAndWritten * (largest(traffic.received) + largest(traffic.sent)) /
               cluster_.devices.front().memory_copy_bytes_per_s +
           2.0 * static_cast<double>(layer_.chunks) * link(kIntraNode).latency_s;
  }

  const Cluster& cluster_;
  const DispatchCase& layer_;
  Spread spread_;
  std::size_t ranks_;
  std::size_t nodes_;
  std::vector<std::vector<std::size_t>> ranks_of_node_;
  std::vector<std::size_t> local_;  // a rank's place in its node
  double token_bytes_;              // one row of every token of a rank
};

DispatchCost cost_of(const DispatchCalculation& calculation, Dispatcher dispatcher) {
  switch (dispatcher) {
    case Dispatcher::alltoall:
      return calculation.flat(calculation.spread().copies);
    case Dispatcher::zero_redundancy:
      return calculation.flat(calculation.spread().rank_hit);
    case Dispatcher::hierarchical:
      return calculation.hierarchical(std::vector<double>(calculation.nodes(), 1.0));
    case Dispatcher::hierarchical_dedup:
      return calculation.hierarchical(calculation.spread().node_hit);
  }
  fail("dispatcher {} is none", static_cast<int>(dispatcher));
}

std::string reason_for(const Cluster& cluster, Dispatcher chosen, Dispatcher fastest,
                       const std::array<DispatchCost, schedule::kDispatchers.size()>& costs) {
  const DispatchCost& cost = costs[static_cast<std::size_t>(chosen)];
  std::string text = fmt::format("{}: {:.3g} ms", name_of(chosen), cost.seconds * 1e3);
  const auto add_level = [&](double bytes, std::string_view name, std::string_view place) {
    if (const Link* const link = cluster.find_link(name); bytes > 0.0 && link != nullptr) {
      text += fmt::format(", {:.3g} MB {} ({:.3g} GB/s per rank)", bytes / 1e6, place,
                          link->bandwidth_bytes_per_s / 1e9);
    }
  };
  add_level(cost.inter_bytes, kInterNode, "between nodes");
  add_level(cost.intra_bytes, kIntraNode, "inside nodes");
  for (const Dispatcher other : schedule::kDispatchers) {
    if (other != chosen) {
      text += fmt::format("{} {:.3g} ms {}", text.find(" against") == std::string::npos ? "; against" : ",",
                          costs[static_cast<std::size_t>(other)].seconds * 1e3, name_of(other));
    }
  }
  if (fastest != chosen) {
    text += fmt::format("; simpler than {}, which is too little faster", name_of(fastest));
  }
  return text;
}

}  // namespace

DispatchCost dispatch_cost(const Cluster& cluster, const DispatchCase& layer, Dispatcher dispatcher) {
  return cost_of(DispatchCalculation(cluster, layer), dispatcher);
}

DispatcherChoice choose_dispatcher(const Cluster& cluster, const DispatchCase& layer) {
  const DispatchCalculation calculation(cluster, layer);
  std::array<DispatchCost, schedule::kDispatchers.size()> costs;
  for (const Dispatcher each : schedule::kDispatchers) {
    costs[static_cast<std::size_t>(each)] = cost_of(calculation, each);
  }
  const auto seconds_of = [&](Dispatcher each) { return costs[static_cast<std::size_t>(each)].seconds; };
  const auto best_of = [&](const auto& kind) {
    const Dispatcher fastest = *std::ranges::min_element(kind, {}, seconds_of);
    return *std::ranges::find_if(
        kind, [&](Dispatcher each) { return seconds_of(each) <= (1.0 + kAsFast) * seconds_of(fastest); });
  };
  const Dispatcher flat = best_of(kFlat);
  const Dispatcher hierarchical = best_of(kHierarchical);
  const Dispatcher chosen =
      seconds_of(hierarchical) < kWorthTwoLevels * seconds_of(flat) ? hierarchical : flat;
  const Dispatcher fastest = *std::ranges::min_element(schedule::kDispatchers, {}, seconds_of);
  return {chosen, costs[static_cast<std::size_t>(chosen)], reason_for(cluster, chosen, fastest, costs)};
}

}  // namespace expedite::cost
