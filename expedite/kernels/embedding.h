// Token embedding: rows of a table, and the gradient of the table.
#pragma once

#include <cstdint>
#include <span>

#include "expedite/tensor/view.h"

namespace expedite::kernels {

/// dst[t] = table[tokens[t]]. table: [V, H]; dst: [T, H]. Throws Error naming a token outside [0, V).
void embedding(ConstTensorView table, std::span<const std::int32_t> tokens, TensorView dst);

/// dtable[tokens[t]] += dy[t], fp32 [V, H], rows of one token added in the order of t.
void embedding_backward(ConstTensorView dy, std::span<const std::int32_t> tokens, TensorView dtable);

}  // namespace expedite::kernels
