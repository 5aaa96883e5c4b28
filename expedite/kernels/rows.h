// Moving rows between matrices by lists of references: into expert order, and summed back into token order.
#pragma once

#include <cstdint>
#include <span>

#include "expedite/tensor/view.h"

namespace expedite::kernels {

/// A row of one of several matrices; source -1: no row.
struct RowRef {
  std::int32_t source = -1;
  std::int32_t row = 0;

  [[nodiscard]] bool operator==(const RowRef& other) const = default;
};

/// dst[i] = row refs[i]; no row: zeros. Sources and dst: one type, any dtype, and one number of columns;
/// refs: as many as dst has rows.
void gather_rows(std::span<const ConstTensorView> sources, std::span<const RowRef> refs, TensorView dst);

/// dst[i] = (residual[i] +) the sum over j of row refs[i * width + j], in fp32 and in the order of j, rounded
/// once; "no row" adds nothing, and a sum of one row is that row bit for bit. width is refs.size() / rows of
/// dst and may be 0. residual: like dst, or empty; may be dst. Sources, residual, dst: f32 or bf16, and one
/// number of columns.
void sum_rows(std::span<const ConstTensorView> sources, std::span<const RowRef> refs,
              ConstTensorView residual, TensorView dst);

}  // namespace expedite::kernels
