#include "expedite/moe/dispatch_plan.h"

#include <limits>
#include <numeric>

#include "expedite/base/error.h"

namespace expedite::moe {
namespace {

void require_row_count(std::int64_t rows, const char* what) {
  require(rows <= std::numeric_limits<std::int32_t>::max(),
          "{} rows {} by one rank in one micro-batch; the limit is 2^31 - 1: use a smaller micro-batch", rows,
          what);
}

}  // namespace

DispatchPlan plan_dispatch(ConstTensorView choices, std::int64_t experts, bool local, TensorView position) {
  const std::int64_t top_k = choices.columns();
  require_row_count(choices.elements(), "dispatched");
  const auto chosen = choices.span<std::int32_t>();
  const auto positions = position.span<std::int32_t>();

  DispatchPlan plan;
  plan.counts.assign(static_cast<std::size_t>(experts), 0);
  for (const std::int32_t expert : chosen) {
    ++plan.counts[static_cast<std::size_t>(expert)];
  }
  std::vector<std::int64_t> next;  // the row that the next choice of each expert takes
  if (local) {
    plan.groups = kernels::aligned_groups(plan.counts);
    require_row_count(plan.groups.rows(), "dispatched");
    next.assign(plan.groups.offsets.begin(), plan.groups.offsets.end() - 1);
    plan.source_tokens.assign(static_cast<std::size_t>(plan.groups.rows()), -1);
  } else {
    next.resize(plan.counts.size());
    std::exclusive_scan(plan.counts.begin(), plan.counts.end(), next.begin(), std::int64_t{0});
    plan.source_tokens.assign(chosen.size(), -1);
  }
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::int64_t row = next[static_cast<std::size_t>(chosen[i])]++;
    positions[i] = static_cast<std::int32_t>(row);
    plan.source_tokens[static_cast<std::size_t>(row)] =
        static_cast<std::int32_t>(i / static_cast<std::size_t>(top_k));
  }
  return plan;
}

void complete_plan(DispatchPlan& plan, std::span<const std::int64_t> all_counts,
                   std::span<const std::int64_t> first_expert, int ep_rank) {
  const std::size_t ranks = first_expert.size() - 1;
  const std::size_t experts = plan.counts.size();
  require(all_counts.size() == ranks * experts,
          "dispatch counts of {} entries do not fit {} ranks and {} experts", all_counts.size(), ranks,
          experts);
  const auto begin = static_cast<std::size_t>(first_expert[static_cast<std::size_t>(ep_rank)]);
  const auto end = static_cast<std::size_t>(first_expert[static_cast<std::size_t>(ep_rank) + 1]);

  plan.send_rows.assign(ranks, 0);
  plan.recv_rows.assign(ranks, 0);
  std::vector<std::int64_t> local_counts(end - begin, 0);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (auto e = static_cast<std::size_t>(first_expert[rank]);
         e < static_cast<std::size_t>(first_expert[rank + 1]); ++e) {
      plan.send_rows[rank] += plan.counts[e];
    }
    for (std::size_t e = begin; e < end; ++e) {
      const std::int64_t rows = all_counts[rank * experts + e];
      plan.recv_rows[rank] += rows;
      local_counts[e - begin] += rows;
    }
  }
  plan.groups = kernels::aligned_groups(local_counts);
  const std::int64_t arrived = std::reduce(plan.recv_rows.begin(), plan.recv_rows.end(), std::int64_t{0});
  require_row_count(plan.groups.rows(), "received");

  plan.row_of_arrival.resize(static_cast<std::size_t>(arrived));
  plan.arrival_of_row.assign(static_cast<std::size_t>(plan.groups.rows()), -1);
  std::vector<std::int64_t> next(plan.groups.offsets.begin(), plan.groups.offsets.end() - 1);
  std::size_t arrival = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t e = begin; e < end; ++e) {
      for (std::int64_t i = 0; i < all_counts[rank * experts + e]; ++i, ++arrival) {
        const std::int64_t row = next[e - begin]++;
        plan.row_of_arrival[arrival] = static_cast<std::int32_t>(row);
        plan.arrival_of_row[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(arrival);
      }
    }
  }
}

}  // namespace expedite::moe
