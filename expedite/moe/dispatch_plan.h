// Who sends which rows to whom, for one MoE layer and micro-batch: made once from the routing of all ranks,
// and used by every chunk's dispatch and combine and both their mirrors in backward.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "expedite/kernels/grouped_matmul.h"
#include "expedite/kernels/rows.h"
#include "expedite/moe/expert_layout.h"
#include "expedite/schedule/ep_plan.h"
#include "expedite/tensor/view.h"

namespace expedite::moe {

/// An expert's number, as ranks tell each other the experts that their tokens chose.
using Choice = std::uint16_t;
/// [T, k] of one rank.
using Choices = std::vector<Choice>;

/// The matrices that RowRef::source numbers. Rows "of a neighbour" are those of a rank of this node, counted
/// by its local index; where a node is one rank, they are this rank's own.
enum OutwardSource : std::int32_t { kTokens = 0, kArrived = 1 };  // kArrived + n: arrived at neighbour n
enum ReturnSource : std::int32_t { kExperts = 0, kReturned = 1, kShared = 2 };  // kShared + n: by neighbour n

/// A row's way: a token's rank sends it to one rank of each node that wants it (its relay there), whose
/// neighbours read it; each sums what its experts make of it, the relay sums its neighbours' sums, and the
/// token's rank sums what nodes return. Row numbers are int32, as the kernels take them: at most 2^31 - 1
/// rows.
struct ChunkPlan {
  std::int64_t first_token = 0;
  std::int64_t tokens = 0;

  // Known to this rank alone.
  std::vector<std::int64_t> send_rows;  // [R] to each relay, in rows
  std::vector<kernels::RowRef> send;    // what to send: kTokens, rows of the whole micro-batch

  // From everybody's routing.
  std::vector<std::int64_t> recv_rows;  // [R] from each rank
  std::vector<kernels::RowRef> share;   // own rows that neighbours read, behind those that arrive: kTokens
  std::vector<std::int64_t> neighbour_rows;    // [neighbours] rows at each that its node reads
  std::vector<std::int64_t> neighbour_shares;  // [neighbours] rows that each sums for the others
  kernels::RowBlocks blocks;                   // rows in expert order, of this chunk alone
  std::vector<kernels::RowRef> expand;         // per row in expert order: OutwardSource; none on padding
  std::vector<std::int32_t> slot;            // per row in expert order: which of its token's k choices it is
  std::vector<kernels::RowRef> shared_sums;  // [neighbour_shares of this rank, k]: ReturnSource
  std::vector<kernels::RowRef> return_sums;  // [rows that arrived, k]: ReturnSource
  std::vector<kernels::RowRef> token_sums;   // [tokens, k]: ReturnSource
  std::int64_t rows_from_neighbours = 0;     // read from other ranks' memory, on the way out
  std::int64_t sums_from_neighbours = 0;     // likewise on the way back

  [[nodiscard]] std::int64_t sent_rows() const { return static_cast<std::int64_t>(send.size()); }
  [[nodiscard]] std::int64_t arrived_rows() const;
  [[nodiscard]] std::int64_t outward_rows() const {  // that lie in this rank's memory for its node
    return arrived_rows() + static_cast<std::int64_t>(share.size());
  }
};

class DispatchPlan {
 public:
  DispatchPlan() = default;
  /// What this rank can tell alone. choices: i32 [T, k]. The layout must outlive the plan.
  DispatchPlan(const ExpertLayout& layout, ConstTensorView choices, const schedule::Chunking& chunking);

  /// Everything else. `routing`: the choices of every rank of the group, by rank; k is the same for all.
  void complete(std::span<const Choices> routing);

  /// This rank's choices, for the others.
  [[nodiscard]] const Choices& choices() const { return choices_; }
  /// [E] rows of this rank for each expert.
  [[nodiscard]] const std::vector<std::int64_t>& counts() const { return counts_; }
  [[nodiscard]] const ChunkPlan& chunk(int index) const { return chunks_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] int chunks() const { return static_cast<int>(chunks_.size()); }

  /// Rows of chunks [first, first + count) in expert order in one matrix for all chunks, where an expert's
  /// rows of one chunk follow those of the chunk before. `total` is the whole matrix's.
  [[nodiscard]] kernels::RowBlocks layer_blocks(int first, int count) const;

 private:
  void plan_sends(ChunkPlan& chunk) const;

  const ExpertLayout* layout_ = nullptr;
  schedule::Chunking chunking_;
  std::int64_t top_k_ = 0;
  Choices choices_;
  std::vector<std::int64_t> counts_;
  std::vector<ChunkPlan> chunks_;
};

}  // namespace expedite::moe
