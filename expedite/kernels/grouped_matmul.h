// Matrix products of a stack of experts, each with its own block of rows. Row counts change every step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "expedite/tensor/view.h"

namespace expedite::kernels {

/// Row counts that recur keep the number of product shapes small: blocks are laid out in multiples of this,
/// the rest zero rows.
inline constexpr std::int64_t kRowAlignment = 16;

/// Rows of a block for `count` tokens: the next multiple of kRowAlignment.
[[nodiscard]] std::int64_t padded_rows(std::int64_t count);

/// Where each expert's rows lie in one tall matrix.
struct RowBlocks {
  std::vector<std::int64_t> begin;  // [E]
  std::vector<std::int64_t> rows;   // [E], padding included
  std::int64_t total = 0;           // of the matrix
};
/// Blocks for `counts` tokens each, padded, one behind the other.
[[nodiscard]] RowBlocks row_blocks(std::span<const std::int64_t> counts);
/// The block of each expert in a matrix or vector of blocks.total rows; an Error if it has others.
[[nodiscard]] std::vector<ConstTensorView> blocks_of(ConstTensorView x, const RowBlocks& blocks);
[[nodiscard]] std::vector<TensorView> blocks_of(TensorView x, const RowBlocks& blocks);

/// y[e] = x[e] · w[e]ᵀ. x[e]: [rows of e, K]; w: [E, N, K]; y[e]: [rows of e, N]. x, w: f32 or bf16; y: the
/// same or f32. Blocks may be empty ([0, K]) and lie anywhere. A row of y does not depend, bit for bit, on
/// the rows beside it, on their number or on its place among them.
void grouped_matmul(std::span<const ConstTensorView> x, ConstTensorView w, std::span<const TensorView> y);

/// dx[e] = dy[e] · w[e], with the same independence of rows.
void grouped_matmul_input_grad(std::span<const ConstTensorView> dy, ConstTensorView w,
                               std::span<const TensorView> dx);

/// dw[e] (+)= dy[e]ᵀ · x[e], fp32 [E, N, K]. An empty block adds nothing (and dw[e] is zeroed when not
/// accumulating). Padding rows of dy and x must be zero, or finite where the other's are zero.
void grouped_matmul_weight_grad(std::span<const ConstTensorView> dy, std::span<const ConstTensorView> x,
                                TensorView dw, bool accumulate);

}  // namespace expedite::kernels
