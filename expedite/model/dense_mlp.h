// The dense MLP of a decoder layer: norm, gate and up, SwiGLU, down, residual.
#pragma once

#include "expedite/model/parameters.h"
#include "expedite/tensor/arena.h"

namespace expedite::model {

/// What forward keeps for backward. F: the dense FFN size.
struct DenseActivations {
  TensorView normed;       // [T, H]
  TensorView inverse_rms;  // f32 [T]
  TensorView gate_up;      // [T, 2F]
  TensorView activated;    // [T, F]

  DenseActivations(Arena& arena, const ModelConfig& config, std::int64_t tokens, DType dtype);
};

/// hidden = mid + mlp(norm(mid)).
void dense_mlp_forward(const ModelConfig& config, const LayerWeights& weights, ConstTensorView mid,
                       DenseActivations& kept, TensorView hidden);

/// grad_mid = grad_hidden + (gradient through the MLP); grad_gate_up, [T, 2F], is kept for the weight
/// gradients.
void dense_mlp_input_grad(LayerWeights& weights, ConstTensorView mid, const DenseActivations& kept,
                          ConstTensorView grad_hidden, TensorView grad_gate_up, TensorView grad_mid,
                          MemoryPool& pool);

void dense_mlp_weight_grad(LayerWeights& weights, const DenseActivations& kept, ConstTensorView grad_hidden,
                           ConstTensorView grad_gate_up);

}  // namespace expedite::model
