#include "expedite/model/dense_mlp.h"

#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/matmul.h"
#include "expedite/kernels/rms_norm.h"
#include "expedite/kernels/swiglu.h"

namespace expedite::model {

DenseActivations::DenseActivations(Arena& arena, const ModelConfig& config, std::int64_t tokens, DType dtype)
    : normed(arena.take(dtype, {tokens, config.hidden_size})),
      inverse_rms(arena.take(DType::f32, {tokens})),
      gate_up(arena.take(dtype, {tokens, 2 * config.intermediate_size})),
      activated(arena.take(dtype, {tokens, config.intermediate_size})) {}

void dense_mlp_forward(const ModelConfig& config, const LayerWeights& weights, ConstTensorView mid,
                       DenseActivations& kept, TensorView hidden) {
  kernels::rms_norm(mid, weights.mlp_norm->weight, config.rms_norm_eps, kept.normed, kept.inverse_rms);
  kernels::matmul(kept.normed, weights.dense.gate_up->weight, kept.gate_up, {.transpose_b = true});
  if (weights.dense.gate_up_bias != nullptr) {
    kernels::add_bias(weights.dense.gate_up_bias->weight, kept.gate_up);
  }
  kernels::swiglu(kept.gate_up, kept.activated);
  kernels::matmul(kept.activated, weights.dense.down->weight, hidden, {.transpose_b = true});
  if (weights.dense.down_bias != nullptr) {
    kernels::add_bias(weights.dense.down_bias->weight, hidden);
  }
  kernels::add(mid, hidden);
}

void dense_mlp_input_grad(LayerWeights& weights, ConstTensorView mid, const DenseActivations& kept,
                          ConstTensorView grad_hidden, TensorView grad_gate_up, TensorView grad_mid,
                          MemoryPool& pool) {
  const Buffer scratch = pool.allocate(kept.activated.bytes(), MemoryCategory::workspace);
  const TensorView grad_activated = scratch.view(kept.activated.dtype(), kept.activated.shape());
  kernels::matmul(grad_hidden, weights.dense.down->weight, grad_activated);
  kernels::swiglu_backward(grad_activated, kept.gate_up, grad_gate_up);
  kernels::matmul(grad_gate_up, weights.dense.gate_up->weight, grad_mid);
  kernels::rms_norm_backward(grad_mid, mid, weights.mlp_norm->weight, kept.inverse_rms, grad_mid, false,
                             weights.mlp_norm->gradient);
  kernels::add(grad_hidden, grad_mid);
}

void dense_mlp_weight_grad(LayerWeights& weights, const DenseActivations& kept, ConstTensorView grad_hidden,
                           ConstTensorView grad_gate_up) {
  const kernels::MatmulOptions options = {.transpose_a = true, .accumulate = true};
  kernels::matmul(grad_hidden, kept.activated, weights.dense.down->gradient, options);
  kernels::matmul(grad_gate_up, kept.normed, weights.dense.gate_up->gradient, options);
  if (weights.dense.gate_up_bias != nullptr) {
    kernels::bias_backward(grad_gate_up, weights.dense.gate_up_bias->gradient);
    kernels::bias_backward(grad_hidden, weights.dense.down_bias->gradient);
  }
}

}  // namespace expedite::model
