#include "bench/expert_products.h"

#include <cstring>

#include "bench/yardstick.h"

namespace expedite::bench {

ExpertProducts::ExpertProducts(const ExpertShape& shape, std::span<const std::int64_t> counts, bool training)
    : training_(training), blocks_(kernels::row_blocks(counts)) {
  const std::int64_t rows = blocks_.total;
  const std::int64_t experts = std::ssize(blocks_.rows);
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
  if (blocks_.total == 0) {
    return 0.0;
  }
  const double begin = seconds();
  const auto blocks = [this](TensorView x) { return kernels::blocks_of(x, blocks_); };
  const auto sources = [this](ConstTensorView x) { return kernels::blocks_of(x, blocks_); };
  kernels::grouped_matmul(sources(x_), w_gate_up_, blocks(gate_up_));
  kernels::grouped_matmul(sources(activation_), w_down_, blocks(y_));
  if (training_) {
    kernels::grouped_matmul_input_grad(sources(y_), w_down_, blocks(d_activation_));
    kernels::grouped_matmul_input_grad(sources(gate_up_), w_gate_up_, blocks(dx_));
    kernels::grouped_matmul_weight_grad(sources(y_), sources(activation_), dw_down_, false);
    kernels::grouped_matmul_weight_grad(sources(gate_up_), sources(x_), dw_gate_up_, false);
  }
  return seconds() - begin;
}

}  // namespace expedite::bench
