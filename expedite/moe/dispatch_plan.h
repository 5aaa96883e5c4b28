// Who sends which rows to whom, for one MoE layer and micro-batch. Made once from the router's choices and
// one exchange of counts, and used by dispatch, combine and both their mirrors in backward.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "expedite/kernels/grouped_matmul.h"
#include "expedite/tensor/view.h"

namespace expedite::moe {

/// Row numbers are int32, as the kernels take them: at most 2^31 - 1 rows per rank, layer and micro-batch.
struct DispatchPlan {
  // From this rank's choices.
  std::vector<std::int64_t> counts;         // [E] rows this rank sends to each expert
  std::vector<std::int32_t> source_tokens;  // per row in dispatch order: its token; -1 on padding

  // From everybody's counts; with expert parallelism only.
  std::vector<std::int64_t> send_rows;       // [EP] rows to each rank
  std::vector<std::int64_t> recv_rows;       // [EP] rows from each rank
  std::vector<std::int32_t> arrival_of_row;  // per row in expert order: where it arrived; -1 on padding
  std::vector<std::int32_t> row_of_arrival;  // per arrived row: its row in expert order

  kernels::RowGroups groups;  // rows of this rank's experts, in expert order

  [[nodiscard]] std::int64_t dispatched_rows() const {
    return static_cast<std::int64_t>(source_tokens.size());
  }
  [[nodiscard]] std::int64_t arrived_rows() const { return static_cast<std::int64_t>(row_of_arrival.size()); }
};

/// The part that needs no communication. choices: i32 [T, k]; fills position, i32 [T, k]: each choice's row
/// in dispatch order, where rows are sorted by expert and, within one, by token and choice. With `local` (no
/// expert parallelism) that order is expert order, padding included, and the plan is complete.
[[nodiscard]] DispatchPlan plan_dispatch(ConstTensorView choices, std::int64_t experts, bool local,
                                         TensorView position);

/// Completes a plan from all_counts [EP][E], the counts of every rank of the expert-parallel group.
/// `first_expert` has EP + 1 entries: rank r holds experts [first_expert[r], first_expert[r + 1]).
void complete_plan(DispatchPlan& plan, std::span<const std::int64_t> all_counts,
                   std::span<const std::int64_t> first_expert, int ep_rank);

}  // namespace expedite::moe
