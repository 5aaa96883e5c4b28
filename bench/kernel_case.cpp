#include "bench/kernel_case.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace expedite::bench {

TensorView Operands::values(DType type, Shape shape) {
  const TensorView result = room(type, shape);
  const std::int64_t count = result.elements();
  for (std::int64_t i = 0; i < count; ++i) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto mantissa = static_cast<std::uint32_t>(state_ >> 41);
    const float value = std::bit_cast<float>(0x40000000U | mantissa) - 3.0F;
    if (type == DType::bf16) {
      result.as<bf16>()[i] = bf16(value);
    } else {
      result.as<float>()[i] = value;
    }
  }
  return result;
}

TensorView Operands::zeros(DType type, Shape shape) {
  const TensorView result = room(type, shape);
  std::fill_n(static_cast<std::byte*>(result.data()), result.bytes(), std::byte{0});
  return result;
}

TensorView Operands::room(DType type, Shape shape) {
  buffers_.push_back(pool_.allocate(shape.elements() * size_of(type), MemoryCategory::activations));
  return buffers_.back().view(type, shape);
}

reference::Matrix doubles(const ConstTensorView& x) {
  reference::Matrix result(x.rows(), x.columns());
  for (std::int64_t row = 0; row < result.rows; ++row) {
    for (std::int64_t column = 0; column < result.columns; ++column) {
      result(row, column) = x.dtype() == DType::bf16 ? static_cast<float>(x.row<bf16>(row)[column])
                                                     : static_cast<double>(x.row<float>(row)[column]);
    }
  }
  return result;
}

KernelResult result_in(std::string name, TensorView view, reference::Matrix wanted, double tolerance,
                       double scale) {
  return {std::move(name), std::move(wanted), [view] { return doubles(view); }, tolerance, scale};
}

}  // namespace expedite::bench
