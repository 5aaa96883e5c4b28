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

/// The rows of each expert in a tall matrix. Group e owns rows [offsets[e], offsets[e + 1]); the first
/// counts[e] of them hold tokens and the rest, fewer than kRowAlignment, is padding that makes shapes recur
/// from step to step.
struct RowGroups {
  static constexpr std::int64_t kRowAlignment = kernels::kRowAlignment;

  std::vector<std::int64_t> counts;   // [E]
  std::vector<std::int64_t> offsets;  // [E + 1]

  [[nodiscard]] std::int64_t groups() const { return static_cast<std::int64_t>(counts.size()); }
  /// Rows of the tall matrix, padding included.
  [[nodiscard]] std::int64_t rows() const { return offsets.empty() ? 0 : offsets.back(); }
};

/// Lays groups of `counts` rows one behind the other, each rounded up to kRowAlignment. Zero counts take no
/// rows.
[[nodiscard]] RowGroups aligned_groups(std::span<const std::int64_t> counts);

/// Sets the padding rows of x[R, K] to zero. Needed on whatever enters a grouped product's weight gradient,
/// and on its inputs so that padding never holds a NaN that costs time.
void zero_padding(const RowGroups& groups, TensorView x);

/// y[R, N] = x[R, K] · w[e]ᵀ for the rows of each group e. w: [E, N, K]. x, w: f32 or bf16; y: the same or
/// f32. Padding rows of y are zero if those of x are.
void grouped_matmul(const RowGroups& groups, ConstTensorView x, ConstTensorView w, TensorView y);

/// dx[R, K] = dy[R, N] · w[e]. w: [E, N, K].
void grouped_matmul_input_grad(const RowGroups& groups, ConstTensorView dy, ConstTensorView w, TensorView dx);

/// dw[e] (+)= dy[rows of e, N]ᵀ · x[rows of e, K], fp32 [E, N, K]. Padding rows of dy and x must be zero or
/// finite with the other zero. A group without rows adds nothing (and is zeroed when not accumulating).
void grouped_matmul_weight_grad(const RowGroups& groups, ConstTensorView dy, ConstTensorView x, TensorView dw,
                                bool accumulate);

}  // namespace expedite::kernels
