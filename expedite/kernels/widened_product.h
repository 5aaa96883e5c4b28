// A product of bf16 matrices computed as f32: operands are widened while they are packed.
#pragma once

#include <cstdint>

#include "expedite/kernels/matmul.h"

namespace expedite::kernels {

/// Computes one product on the calling thread: dst[M, N] (+)= op(a)[M, K] · op(b)[K, N], a and b bf16, dst
/// bf16 or f32 (f32 if it accumulates), all of at least one row and column, K >= 1, shapes and types checked
/// before.
///
/// For CPUs whose f32 multiply-adds are faster than their bf16 dot products, or that have none. Widening is
/// exact, so a product of two elements is too, and only sums round. Every element of dst is summed over K in
/// blocks of a fixed size, in order, whatever M and N are: its bits depend on its row of op(a) and its column
/// of op(b) alone. Blocking and packing as in Goto and van de Geijn, "Anatomy of High-Performance Matrix
/// Multiplication" (2008).
void widened_product(const MatmulOperands& operands, MatmulOptions options);

}  // namespace expedite::kernels
