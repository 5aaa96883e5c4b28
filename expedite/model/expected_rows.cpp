#include "expedite/model/expected_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "expedite/cost/routing.h"
#include "expedite/kernels/grouped_matmul.h"

namespace expedite::model {
namespace {

std::size_t place(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

/// The expected multiple of kRowAlignment that holds so many rows on average: of a Poisson count.
double expected_padded_rows(double mean) {
  constexpr auto kStep = static_cast<double>(kernels::kRowAlignment);
  constexpr double kMany = 8.0 * kStep;
  if (mean >= kMany) {
    return mean + (kStep - 1.0) / 2.0;
  }
  double expected = 0.0;
  double probability = std::exp(-mean);
  for (std::int64_t count = 0; count < static_cast<std::int64_t>(4.0 * kMany); ++count) {
    expected += probability * static_cast<double>(kernels::padded_rows(count));
    probability *= mean / static_cast<double>(count + 1);
  }
  return expected;
}

}  // namespace

ExpectedRows::ExpectedRows(const StepCase& step, std::int64_t layer, int rank) {
  const comm::GridLayout& layout = step.placement.layout;
  const ModelConfig& config = step.config;
  ranks_ = layout.expert_parallel_size();
  const int self = layout.expert_parallel_rank(rank);
  cost::Routing routing{.experts = config.experts, .topk = config.experts_per_token};
  if (!step.expert_loads.empty()) {
    routing.weights =
        step.expert_loads[place(std::count(config.sparse.begin(), config.sparse.begin() + layer, true))];
    // An expert that nobody chose may be chosen yet.
    const double least = 1e-6 * std::reduce(routing.weights.begin(), routing.weights.end());
    std::ranges::for_each(routing.weights, [&](double& weight) { weight = std::max(weight, least); });
  }
  std::vector<int> node_of;  // of the group's ranks, numbered from 0
  std::vector<int> numbers;
  for (const int member : layout.expert_parallel_ranks(rank)) {
    const auto found = std::ranges::find(numbers, step.placement.node(member));
    node_of.push_back(static_cast<int>(found - numbers.begin()));
    if (found == numbers.end()) {
      numbers.push_back(step.placement.node(member));
    }
  }
  std::vector<int> rank_of_expert;
  for (std::int64_t expert = 0; expert < config.experts; ++expert) {
    rank_of_expert.push_back(comm::expert_owner(config.experts, ranks_, expert));
  }
  const cost::Spread spread = expected_spread(routing, rank_of_expert, node_of);
  const double weights = std::reduce(routing.weights.begin(), routing.weights.end());
  for (std::int64_t expert = 0; expert < config.experts; ++expert) {
    if (rank_of_expert[place(expert)] == self) {
      copies_.push_back(static_cast<double>(config.experts_per_token) *
                        (routing.weights.empty() ? 1.0 / static_cast<double>(config.experts)
                                                 : routing.weights[place(expert)] / weights));
    }
  }
  const double own_copies = std::reduce(copies_.begin(), copies_.end());
  const auto dispatcher = step.plan.dispatcher;
  const bool hierarchical = dispatcher == schedule::Dispatcher::hierarchical ||
                            dispatcher == schedule::Dispatcher::hierarchical_dedup;
  const auto others = static_cast<double>(ranks_ - 1);
  summands_token_ = own_copies;
  if (!hierarchical) {
    const bool copies = dispatcher == schedule::Dispatcher::alltoall;
    const std::vector<double>& rows = copies ? spread.copies : spread.rank_hit;
    for (int other = 0; other < ranks_; ++other) {
      sent_ += other == self ? 0.0 : rows[place(other)];
      summands_token_ += other == self ? 0.0 : rows[place(other)];
    }
    arrived_ = others * rows[place(self)];
    summands_back_ = copies || rows[place(self)] == 0.0 ? 1.0 : own_copies / rows[place(self)];
    return;
  }
  // A node's ranks take turns as relays of tokens from elsewhere, and each of its own.
  const int node = node_of[place(self)];
  const auto mates = static_cast<double>(std::ranges::count(node_of, node));
  const auto rows_for = [&](int which) {
    return dispatcher == schedule::Dispatcher::hierarchical ? 1.0 : spread.node_hit[place(which)];
  };
  for (int other = 0; other < static_cast<int>(spread.node_hit.size()); ++other) {
    sent_ += other == node ? 0.0 : rows_for(other);
    summands_token_ += other == node ? 0.0 : spread.node_hit[place(other)];
  }
  arrived_ = (static_cast<double>(ranks_) - mates) / mates * rows_for(node);
  std::vector<std::int64_t> of_mates;
  double mates_hit = 0.0;  // other ranks of the node that a token goes to
  for (int other = 0; other < ranks_; ++other) {
    mates_hit += other != self && node_of[place(other)] == node ? spread.rank_hit[place(other)] : 0.0;
  }
  for (std::int64_t expert = 0; expert < config.experts; ++expert) {
    const int owner = rank_of_expert[place(expert)];
    if (owner != self && node_of[place(owner)] == node) {
      of_mates.push_back(expert);
    }
  }
  summands_token_ += mates_hit;
  shared_ = hit_probability(routing, of_mates);
  const double hit = spread.rank_hit[place(self)];
  summed_ = static_cast<double>(ranks_) * (mates - 1.0) / mates * hit;
  summands_back_ = mates > 1.0                          ? (hit > 0.0 ? own_copies / hit : 1.0)
                   : spread.node_hit[place(node)] > 0.0 ? own_copies / rows_for(node)
                                                        : 1.0;
}

std::vector<double> ExpectedRows::of_experts(double tokens) const {
  std::vector<double> rows;
  for (const double copies : copies_) {
    rows.push_back(expected_padded_rows(static_cast<double>(ranks_) * tokens * copies));
  }
  return rows;
}

}  // namespace expedite::model
