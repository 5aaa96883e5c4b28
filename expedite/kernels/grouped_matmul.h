// Matrix products of a stack of experts, each with its own rows of one tall matrix. Row counts change every
// step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "expedite/tensor/view.h"

namespace expedite::kernels {

/// The rows of each expert in a tall matrix. Group e owns rows [offsets[e], offsets[e + 1]); the first
/// counts[e] of them hold tokens and the rest, fewer than kRowAlignment, is padding that makes shapes recur
/// from step to step.
struct RowGroups {
  static constexpr std::int64_t kRowAlignment = 16;

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
