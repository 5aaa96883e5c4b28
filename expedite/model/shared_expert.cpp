#include "expedite/model/shared_expert.h"

#include <cmath>

#include "expedite/kernels/matmul.h"
#include "expedite/kernels/swiglu.h"
#include "expedite/model/as_f32.h"

namespace expedite::model {
namespace {

/// f32 [T] as a matrix.
template <typename View>
View as_column(const View& vector) {
  return vector.reshape({vector.elements(), 1});
}

void gate_forward(ConstTensorView x, const Parameter& weight, TensorView gate) {
  kernels::matmul(x, weight.weight, as_column(gate), {.transpose_b = true});
  for (float& value : gate.span<float>()) {
    value = 1.0F / (1.0F + std::exp(-value));
  }
}

/// Turns the gradient of the gate's sigmoid into that of its logit.
void sigmoid_backward(ConstTensorView gate, TensorView grad_gate) {
  const float* value = gate.as<float>();
  for (float& gradient : grad_gate.span<float>()) {
    gradient *= *value * (1.0F - *value);
    ++value;
  }
}

/// grad_normed[T, H] += the outer product of grad_gate[T] and the gate's weight, rounded once.
void gate_input_grad(const Parameter& weight, ConstTensorView grad_gate, TensorView grad_normed,
                     MemoryPool& pool) {
  Buffer converted;
  const Buffer product =
      pool.allocate(grad_normed.elements() * size_of(DType::f32), MemoryCategory::workspace);
  const TensorView through_gate = product.view(DType::f32, grad_normed.shape());
  kernels::matmul(as_column(grad_gate), as_f32(weight.weight, converted, pool), through_gate);
  kernels::add(through_gate, grad_normed);
}

}  // namespace

SharedActivations::SharedActivations(Arena& arena, const ModelConfig& config, std::int64_t tokens,
                                     DType dtype)
    : gate_up(arena.take(dtype, {tokens, 2 * config.shared_expert_intermediate_size})),
      activated(arena.take(dtype, {tokens, config.shared_expert_intermediate_size})) {
  if (config.shared_expert_gate) {
    gate = arena.take(DType::f32, {tokens});
  }
}

SharedGradients::SharedGradients(Arena& arena, const ModelConfig& config, std::int64_t tokens, DType dtype)
    : gate_up(arena.take(dtype, {tokens, 2 * config.shared_expert_intermediate_size})),
      normed(arena.take(dtype, {tokens, config.hidden_size})) {
  if (config.shared_expert_gate) {
    gate = arena.take(DType::f32, {tokens});
  }
}

void shared_expert_forward(const SharedExpertWeights& weights, ConstTensorView normed, std::int64_t begin,
                           std::int64_t count, SharedActivations& kept, TensorView output) {
  const ConstTensorView x = normed.slice(begin, count);
  const TensorView gate_up = kept.gate_up.slice(begin, count);
  const TensorView activated = kept.activated.slice(begin, count);
  kernels::matmul(x, weights.gate_up->weight, gate_up, {.transpose_b = true});
  TensorView gate;
  if (weights.gate != nullptr) {
    gate = kept.gate.slice(begin, count);
    gate_forward(x, *weights.gate, gate);
  }
  // Weighing the activation weighs the output, with Fs products a row instead of H.
  kernels::swiglu(gate_up, gate, activated);
  kernels::matmul(activated, weights.down->weight, output.slice(begin, count), {.transpose_b = true});
}

void shared_expert_input_grad(const SharedExpertWeights& weights, const SharedActivations& kept,
                              ConstTensorView grad_output, TensorView grad_gate_up, TensorView grad_gate,
                              TensorView grad_normed, MemoryPool& pool) {
  const Buffer scratch = pool.allocate(kept.activated.bytes(), MemoryCategory::workspace);
  const TensorView grad_activated = scratch.view(kept.activated.dtype(), kept.activated.shape());
  kernels::matmul(grad_output, weights.down->weight, grad_activated);
  kernels::swiglu_backward(grad_activated, kept.gate_up, kept.gate, grad_gate_up, grad_gate);
  kernels::matmul(grad_gate_up, weights.gate_up->weight, grad_normed);
  if (weights.gate != nullptr) {
    sigmoid_backward(kept.gate, grad_gate);
    gate_input_grad(*weights.gate, grad_gate, grad_normed, pool);
  }
}

void shared_expert_weight_grad(SharedExpertWeights& weights, ConstTensorView normed,
                               const SharedActivations& kept, ConstTensorView grad_output,
                               ConstTensorView grad_gate_up, ConstTensorView grad_gate, MemoryPool& pool) {
  const kernels::MatmulOptions options = {.transpose_a = true, .accumulate = true};
  kernels::matmul(grad_output, kept.activated, weights.down->gradient, options);
  kernels::matmul(grad_gate_up, normed, weights.gate_up->gradient, options);
  if (weights.gate != nullptr) {
    Buffer converted;
    kernels::matmul(as_column(grad_gate), as_f32(normed, converted, pool), weights.gate->gradient, options);
  }
}

}  // namespace expedite::model
