// The shared expert of an MoE layer: an expert that every token passes through, on the token's own rank, so
// that it can be computed while rows of the other experts travel. Weighed by sigmoid(gate · x) where the
// model has a gate (qwen2_moe), plain otherwise (DeepSeekMoE, Dai et al., 2024, arXiv:2401.06066).
#pragma once

#include <cstdint>

#include "expedite/model/parameters.h"
#include "expedite/tensor/arena.h"

namespace expedite::model {

/// What forward keeps for backward. T tokens, Fs shared_expert_intermediate_size.
struct SharedActivations {
  TensorView gate_up;    // [T, 2 Fs]
  TensorView activated;  // [T, Fs], weighed by the gate
  TensorView gate;       // f32 [T], the gate's sigmoid; empty without a gate

  SharedActivations(Arena& arena, const ModelConfig& config, std::int64_t tokens, DType dtype);
};

/// What backward makes for the weight gradients and for the layer.
struct SharedGradients {
  TensorView gate_up;  // [T, 2 Fs]
  TensorView gate;     // f32 [T], of gate · x; empty without a gate
  TensorView normed;   // [T, H]

  SharedGradients(Arena& arena, const ModelConfig& config, std::int64_t tokens, DType dtype);
};

/// Rows [begin, begin + count) of output[T, H] = sigmoid(gate · x) * down(swiglu(gate_up(x))), x being the
/// rows of normed[T, H], and of `kept`. A row does not depend, bit for bit, on which rows it is computed
/// with.
void shared_expert_forward(const SharedExpertWeights& weights, ConstTensorView normed, std::int64_t begin,
                           std::int64_t count, SharedActivations& kept, TensorView output);

/// From grad_output[T, H], all overwritten: grad_normed[T, H], the gradient of normed through the shared
/// expert alone, and what its weight gradients need: grad_gate_up[T, 2 Fs] and grad_gate, f32 [T], the
/// gradient of gate · x (not touched without a gate).
void shared_expert_input_grad(const SharedExpertWeights& weights, const SharedActivations& kept,
                              ConstTensorView grad_output, TensorView grad_gate_up, TensorView grad_gate,
                              TensorView grad_normed, MemoryPool& pool);

/// Adds the gradients of the weights.
void shared_expert_weight_grad(SharedExpertWeights& weights, ConstTensorView normed,
                               const SharedActivations& kept, ConstTensorView grad_output,
                               ConstTensorView grad_gate_up, ConstTensorView grad_gate, MemoryPool& pool);

}  // namespace expedite::model
