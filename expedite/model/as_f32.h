// Rows in fp32 for the parts of a model that compute in it whatever the model's type.
#pragma once

#include "expedite/kernels/elementwise.h"
#include "expedite/tensor/memory_pool.h"

namespace expedite::model {

/// x itself, or its elements converted, in memory that `scratch` then holds.
[[nodiscard]] inline ConstTensorView as_f32(const ConstTensorView& x, Buffer& scratch, MemoryPool& pool) {
  if (x.dtype() == DType::f32) {
    return x;
  }
  scratch = pool.allocate(x.elements() * size_of(DType::f32), MemoryCategory::workspace);
  const TensorView converted = scratch.view(DType::f32, x.shape());
  kernels::convert(x, converted);
  return converted;
}

}  // namespace expedite::model
