// What a router does to the ranks that hold its experts: how many of them a token goes to, and how busy the
// busiest is.
#pragma once

#include <cstdint>
#include <vector>

#include "expedite/cost/routing.h"

namespace expedite::plan {

/// How often experts are chosen.
struct ExpertLoad {
  std::vector<double> weights = {};  // as in cost::Routing; empty: all alike
  // Weight e is expert e's, and ranks hold neighbours, as every program here places them: rank r has experts
  // r * E / ep and on. Otherwise only the weights are known and not whose they are: every order is as likely.
  bool by_expert = true;
};

/// With ep ranks, of equally many experts each.
struct ExpertReach {
  std::int64_t ep = 1;
  double ranks = 1.0;    // distinct ranks that a token goes to
  double nodes = 1.0;    // and nodes
  double busiest = 1.0;  // rows of the busiest rank over the mean, of many tokens
  double chance = 0.0;  // times the root of the mean rows of a rank: what chance adds to it if loads are even

  /// Expected rows of the busiest rank over the mean, of `rows` on average. What loads and what chance make
  /// of it add in squares, which is right where one of the two is small.
  [[nodiscard]] double busiest_of(double rows) const;
};

/// Of every ep up to `most_ranks` that divides the experts, in order. Unknown places are averaged over: the
/// busiest rank over 400 orders of the experts, a token's ranks and nodes over two. Chance: the expected
/// largest of ep numbers that are normal, sum to nothing, and vary as draws without return do.
[[nodiscard]] std::vector<ExpertReach> expert_reaches(const cost::Routing& routing, bool by_expert,
                                                      std::int64_t most_ranks, std::int64_t ranks_per_node);

}  // namespace expedite::plan
