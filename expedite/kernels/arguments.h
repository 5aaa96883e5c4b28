// Checks of what callers hand to a kernel, so that a wrong shape is an error and never a wrong address.
#pragma once

#include <string_view>

#include "expedite/base/error.h"
#include "expedite/tensor/view.h"

namespace expedite::kernels {

/// Whether an optional tensor was given: a default view and a view without elements both mean "none".
[[nodiscard]] inline bool present(const ConstTensorView& x) {
  return x.data() != nullptr && !x.empty();
}

inline void require_type(std::string_view name, const ConstTensorView& x, DType dtype) {
  require(x.dtype() == dtype, "{} is {}, but must be {}", name, name_of(x.dtype()), name_of(dtype));
}

inline void require_float(std::string_view name, const ConstTensorView& x) {
  require(x.dtype() == DType::f32 || x.dtype() == DType::bf16, "{} is {}, but must be f32 or bf16", name,
          name_of(x.dtype()));
}

inline void require_shape(std::string_view name, const ConstTensorView& x, const Shape& shape) {
  if (x.shape() != shape) [[unlikely]] {  // texts are made only when needed
    fail("{} has shape {}, but must have {}", name, to_string(x.shape()), to_string(shape));
  }
}

inline void require_matrix(std::string_view name, const ConstTensorView& x) {
  if (x.rank() != 2) [[unlikely]] {
    fail("{} has shape {}, but must be a matrix", name, to_string(x.shape()));
  }
}

}  // namespace expedite::kernels
