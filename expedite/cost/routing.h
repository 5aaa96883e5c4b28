// What to expect of a router: how likely a token is to choose any expert of a group (a rank's, a node's), and
// so how many ranks and nodes a token goes to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace expedite::cost {

/// How tokens choose `topk` different experts of `experts`.
/// Without weights every set of topk experts is as likely as any other. With weights [E], a token draws one
/// expert after the other with probability in proportion to the weights of those not yet drawn. Weights may
/// be a measured load; the load that they cause is a little flatter, because an expert is chosen at most once
/// by a token: exact for topk = 1 and for even loads, close while no expert is chosen by most tokens.
struct Routing {
  std::int64_t experts = 0;
  std::int64_t topk = 0;
  std::vector<double> weights = {};  // > 0; empty: all the same
};

/// Weights of Zipf's law: expert e has (e + 1)^-exponent. Exponent 0 is even.
[[nodiscard]] std::vector<double> zipf_weights(std::int64_t experts, double exponent);

/// The probability that a token chooses at least one of the experts of `group` (different ones, any order).
/// Without weights 1 - C(E - |group|, k) / C(E, k). With weights, from independent exponential clocks, one
/// per expert, of which the first k to ring are chosen (Efraimidis & Spirakis, Information Processing Letters
/// 97, 2006): the group is missed when k others ring before its first, a one-dimensional integral, taken to
/// about 1e-9. Throws Error when the routing or the group makes no sense.
[[nodiscard]] double hit_probability(const Routing& routing, std::span<const std::int64_t> group);

/// Where a token's copies go, on average.
struct Spread {
  std::vector<double> copies;    // [ranks] expert copies of a token that a rank receives; their sum is k
  std::vector<double> rank_hit;  // [ranks] probability that a token goes to a rank
  std::vector<double> node_hit;  // [nodes] and to a node
};

/// rank_of_expert: [E]; node_of_rank: [ranks], nodes numbered from 0 without gaps. Ranks may hold any number
/// of experts. Throws Error when the placement does not fit.
[[nodiscard]] Spread expected_spread(const Routing& routing, std::span<const int> rank_of_expert,
                                     std::span<const int> node_of_rank);

}  // namespace expedite::cost
