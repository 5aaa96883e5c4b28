#include "bench/expert_products.h"

#include <cstring>

#include "bench/yardstick.h"

namespace expedite::bench {

ExpertProducts::ExpertProducts(const ExpertShape& shape, std::span<const std::int64_t> counts, bool training)
    : training_(training), groups_(kernels::aligned_groups(counts)) {
  const std::int64_t rows = groups_.rows();
  const std::int64_t experts = groups_.groups();
  x_ = tensor(shape.dtype, {rows, shape.hidden});
  gate_up_ = tensor(shape.dtype, {rows, 2 * shape.ffn});
  activation_ = tensor(shape.dtype, {rows, shape.ffn});
  y_ = tensor(shape.dtype, {rows, shape.hidden});
  w_gate_up_ = tensor(shape.dtype, {experts, 2 * shape.ffn, shape.hidden});
  w_down_ = tensor(shape.dtype, {experts, shape.hidden, shape.ffn});
  if (training) {
    dx_ = tensor(shape.dtype, x_.shape());
    d_activation_ = tensor(shape.dtype, activation_.shape());
    dw_gate_up_ = tensor(DType::f32, w_gate_up_.shape());
    dw_down_ = tensor(DType::f32, w_down_.shape());
  }
}

TensorView ExpertProducts::tensor(DType dtype, Shape shape) {
  const Buffer& buffer =
      buffers_.emplace_back(pool_.allocate(shape.elements() * size_of(dtype), MemoryCategory::workspace));
  std::memset(buffer.data(), 0x3C, static_cast<std::size_t>(buffer.bytes()));  // small numbers
  return buffer.view(dtype, shape);
}

double ExpertProducts::sample() {
  if (groups_.rows() == 0) {
    return 0.0;
  }
  const double begin = seconds();
  kernels::grouped_matmul(groups_, x_, w_gate_up_, gate_up_);
  kernels::grouped_matmul(groups_, activation_, w_down_, y_);
  if (training_) {
    kernels::grouped_matmul_input_grad(groups_, y_, w_down_, d_activation_);
    kernels::grouped_matmul_input_grad(groups_, gate_up_, w_gate_up_, dx_);
    kernels::grouped_matmul_weight_grad(groups_, y_, activation_, dw_down_, false);
    kernels::grouped_matmul_weight_grad(groups_, gate_up_, x_, dw_gate_up_, false);
  }
  return seconds() - begin;
}

}  // namespace expedite::bench
