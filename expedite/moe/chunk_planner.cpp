#include "expedite/moe/chunk_planner.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "expedite/base/error.h"

namespace expedite::moe {
namespace {

void require_row_count(std::int64_t rows, const char* what) {
  require(rows <= std::numeric_limits<std::int32_t>::max(),
          "{} rows {} by one rank in one chunk; the limit is 2^31 - 1: use more chunks or a smaller "
          "micro-batch",
          rows, what);
}

kernels::RowRef ref(std::int32_t source, std::int64_t row) {
  return {source, static_cast<std::int32_t>(row)};
}

}  // namespace

ChunkPlanner::ChunkPlanner(const ExpertLayout& layout, std::span<const Choices> routing,
                           std::span<const std::vector<std::int64_t>> bounds, std::size_t chunk,
                           std::int64_t top_k)
    : layout_(layout),
      routing_(routing),
      bounds_(bounds),
      chunk_(chunk),
      top_k_(top_k),
      neighbours_(layout.neighbours().size()),
      self_(layout.local_index(layout.rank())),
      rows_(static_cast<std::size_t>(layout.ranks()), 0),
      shares_(neighbours_ * neighbours_, 0),
      block_rows_(static_cast<std::size_t>(layout.local_experts() * layout.ranks()), 0),
      summed_(neighbours_, false) {}

template <typename Visit>
void ChunkPlanner::for_each_token(const Visit& visit) {
  const int node = layout_.node(layout_.rank());
  std::vector<int> wanted;
  for (int source = 0; source < layout_.ranks(); ++source) {
    const Choices& choices = routing_[static_cast<std::size_t>(source)];
    const std::vector<std::int64_t>& bounds = bounds_[static_cast<std::size_t>(source)];
    Token token;
    token.source = source;
    token.relay = layout_.local_index(layout_.relay(source, node));
    token.foreign = layout_.node(source) != node;
    for (std::int64_t t = bounds[chunk_]; t < bounds[chunk_ + 1]; ++t) {
      token.number = t;
      token.index = t - bounds[chunk_];
      token.choices =
          std::span(choices).subspan(static_cast<std::size_t>(t * top_k_), static_cast<std::size_t>(top_k_));
      wanted.clear();
      for (const Choice expert : token.choices) {
        const int owner = layout_.owner(expert);
        if (layout_.node(owner) == node) {
          const int n = layout_.local_index(owner);
          if (std::find(wanted.begin(), wanted.end(), n) == wanted.end()) {
            wanted.push_back(n);
          }
        }
      }
      token.wanted = wanted;
      visit(token);
    }
  }
}

std::int64_t ChunkPlanner::rows_at_relay(const Token& token) const {
  if (!token.foreign) {  // read by neighbours alone: a rank reads its own tokens where they are
    return std::any_of(token.wanted.begin(), token.wanted.end(), [&](int n) { return n != token.relay; });
  }
  if (layout_.row_per_copy()) {  // the node is this rank alone
    return std::count_if(token.choices.begin(), token.choices.end(),
                         [this](Choice expert) { return layout_.owner(expert) == layout_.rank(); });
  }
  return layout_.every_node() || !token.wanted.empty() ? 1 : 0;
}

void ChunkPlanner::count(ChunkPlan& plan) {
  const std::int64_t first_expert = layout_.first_local_expert();
  for_each_token([&](const Token& token) {
    rows_[static_cast<std::size_t>(token.source)] += rows_at_relay(token);
    for (const int n : token.wanted) {
      next_share(token.relay, n) += n != token.relay;
    }
    for (const Choice expert : token.choices) {
      if (layout_.owner(expert) == layout_.rank()) {
        ++next_block_row(expert - first_expert, token.source);
      }
    }
  });

  // At each relay rows from elsewhere lie by source, its own behind them.
  plan.recv_rows.assign(rows_.size(), 0);
  plan.neighbour_rows.assign(neighbours_, 0);
  for (const bool foreign : {true, false}) {
    for (std::size_t source = 0; source < rows_.size(); ++source) {
      const int relay = layout_.relay(static_cast<int>(source), layout_.node(layout_.rank()));
      if (foreign != (relay != static_cast<int>(source))) {
        continue;
      }
      const auto n = static_cast<std::size_t>(layout_.local_index(relay));
      if (foreign && relay == layout_.rank()) {
        plan.recv_rows[source] = rows_[source];
      }
      plan.neighbour_rows[n] += rows_[source];
      rows_[source] = plan.neighbour_rows[n] - rows_[source];
    }
  }
  require_row_count(plan.neighbour_rows[static_cast<std::size_t>(self_)], "received");

  // A neighbour's sums lie by the relay that they are for.
  plan.neighbour_shares.assign(neighbours_, 0);
  for (std::size_t n = 0; n < neighbours_; ++n) {
    for (std::size_t relay = 0; relay < neighbours_; ++relay) {
      std::int64_t& shares = next_share(static_cast<int>(relay), static_cast<int>(n));
      plan.neighbour_shares[n] += shares;
      shares = plan.neighbour_shares[n] - shares;
    }
  }

  std::vector<std::int64_t> counts;
  for (std::int64_t e = 0; e < layout_.local_experts(); ++e) {
    counts.push_back(0);
    for (int source = 0; source < layout_.ranks(); ++source) {
      counts.back() += next_block_row(e, source);
    }
  }
  plan.blocks = kernels::row_blocks(counts);
  for (std::int64_t e = 0; e < layout_.local_experts(); ++e) {
    std::int64_t next = plan.blocks.begin[static_cast<std::size_t>(e)];
    for (int source = 0; source < layout_.ranks(); ++source) {
      next += std::exchange(next_block_row(e, source), next);
    }
  }
  require_row_count(plan.blocks.total, "received");
}

void ChunkPlanner::assign_token(const Token& token, ChunkPlan& plan) {
  const bool own = token.source == layout_.rank();
  const std::int64_t rows = rows_at_relay(token);
  const bool relayed_here = token.foreign && token.relay == self_ && rows > 0;
  std::int64_t row = rows_[static_cast<std::size_t>(token.source)];
  rows_[static_cast<std::size_t>(token.source)] += rows;
  if (own && rows > 0) {
    plan.share.push_back(ref(kTokens, token.number));
  }
  // One sum a row, except with a row per copy, where each copy's is its own.
  kernels::RowRef* returned = nullptr;
  if (relayed_here) {
    returned = &plan.return_sums[static_cast<std::size_t>(row * top_k_)];
  }
  std::fill(summed_.begin(), summed_.end(), false);
  std::int64_t own_share = -1;
  for (std::size_t j = 0; j < token.choices.size(); ++j) {
    const Choice expert = token.choices[j];
    const int owner = layout_.owner(expert);
    if (layout_.node(owner) != layout_.node(layout_.rank())) {
      continue;
    }
    const int n = layout_.local_index(owner);
    kernels::RowRef sum;  // what the token's rank or its relay adds for this choice, if anything
    if (owner == layout_.rank()) {
      const std::int64_t expert_row = next_block_row(expert - layout_.first_local_expert(), token.source)++;
      plan.expand[static_cast<std::size_t>(expert_row)] =
          own ? ref(kTokens, token.number) : ref(kArrived + token.relay, row);
      plan.slot[static_cast<std::size_t>(expert_row)] = static_cast<std::int32_t>(j);
      sum = ref(kExperts, expert_row);
      if (token.relay != self_) {
        if (own_share < 0) {
          own_share = next_share(token.relay, n)++;
        }
        plan.shared_sums[static_cast<std::size_t>(own_share * top_k_) + j] = sum;
      }
    } else if (n != token.relay && !summed_[static_cast<std::size_t>(n)]) {
      sum = ref(kShared + n, next_share(token.relay, n)++);
      summed_[static_cast<std::size_t>(n)] = true;
    }
    if (own) {
      plan.token_sums[static_cast<std::size_t>(token.index * top_k_) + j] = sum;
    } else if (relayed_here) {
      returned[j] = sum;
      if (layout_.row_per_copy() && owner == layout_.rank()) {
        ++row;
        returned += top_k_;
      }
    }
  }
}

void ChunkPlanner::complete(ChunkPlan& plan) {
  count(plan);
  const auto blocks = static_cast<std::size_t>(plan.blocks.total);
  const auto top_k = static_cast<std::size_t>(top_k_);
  plan.expand.assign(blocks, {});
  plan.slot.assign(blocks, 0);
  plan.share.clear();
  plan.shared_sums.assign(
      static_cast<std::size_t>(plan.neighbour_shares[static_cast<std::size_t>(self_)]) * top_k, {});
  plan.return_sums.assign(static_cast<std::size_t>(plan.arrived_rows()) * top_k, {});
  for_each_token([&](const Token& token) { assign_token(token, plan); });

  const auto from_neighbours = [](const std::vector<kernels::RowRef>& refs, std::int32_t first,
                                  std::int32_t self) {
    return std::count_if(refs.begin(), refs.end(), [&](const kernels::RowRef& ref) {
      return ref.source >= first && ref.source != first + self;
    });
  };
  plan.rows_from_neighbours = from_neighbours(plan.expand, kArrived, self_);
  plan.sums_from_neighbours =
      from_neighbours(plan.return_sums, kShared, self_) + from_neighbours(plan.token_sums, kShared, self_);
}

}  // namespace expedite::moe
