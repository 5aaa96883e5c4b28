// The compute parts of an MoE layer: router and experts. What moves rows between them is the schedule's.
#pragma once

#include <span>

#include "expedite/kernels/grouped_matmul.h"
#include "expedite/model/parameters.h"
#include "expedite/tensor/arena.h"

namespace expedite::model {

/// What the router keeps for backward. T tokens, E experts, k choices.
struct RouterActivations {
  TensorView normed;       // [T, H]
  TensorView inverse_rms;  // f32 [T]
  TensorView logits;       // f32 [T, E]
  TensorView scores;       // f32 [T, E]
  TensorView experts;      // i32 [T, k]
  TensorView weights;      // f32 [T, k]
  TensorView position;     // i32 [T, k]: see moe::plan_dispatch

  RouterActivations(Arena& arena, const ModelConfig& config, std::int64_t tokens, DType dtype);
};

/// What the experts keep for backward, rows in expert order. R rows, F the expert FFN size.
struct ExpertActivations {
  TensorView gate_up;    // [R, 2F]
  TensorView activated;  // [R, F]

  ExpertActivations(Arena& arena, const ModelConfig& config, std::int64_t rows, DType dtype);
};

/// Normalises, scores in fp32 and chooses. Throws Error on a logit that is not finite. `position` is not set.
void router_forward(const ModelConfig& config, const LayerWeights& weights, ConstTensorView mid,
                    RouterActivations& kept, MemoryPool& pool);

/// grad_logits, f32 [T, E] (overwritten), from the gradient of the gate weights, f32 [T, k].
void gate_backward(const ModelConfig& config, const RouterActivations& kept, ConstTensorView grad_weights,
                   TensorView grad_logits);

/// grad_logits: f32 [T, E], complete. grad_mid comes in as the gradient of the normed rows through the
/// experts and leaves as that of mid: grad_hidden + (gradient through the layer). Adds the router's and the
/// norm's weight gradients.
void router_backward(LayerWeights& weights, ConstTensorView mid, const RouterActivations& kept,
                     ConstTensorView grad_logits, ConstTensorView grad_hidden, TensorView grad_mid,
                     MemoryPool& pool);

/// output[R, H] = down(swiglu(gate_up(input))), each group through its own expert.
void experts_forward(const MoeWeights& weights, const kernels::RowGroups& groups, ConstTensorView input,
                     ExpertActivations& kept, TensorView output);

/// grad_input and grad_gate_up from grad_output. Padding rows of grad_output must be zero.
void experts_input_grad(const MoeWeights& weights, const kernels::RowGroups& groups,
                        const ExpertActivations& kept, ConstTensorView grad_output, TensorView grad_gate_up,
                        TensorView grad_input, MemoryPool& pool);

void experts_weight_grad(MoeWeights& weights, const kernels::RowGroups& groups, ConstTensorView input,
                         const ExpertActivations& kept, ConstTensorView grad_output,
                         ConstTensorView grad_gate_up);

}  // namespace expedite::model
