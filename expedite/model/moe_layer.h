// The compute parts of an MoE layer: router and experts. What moves rows between them is the schedule's.
#pragma once

#include <span>

#include "expedite/kernels/router.h"
#include "expedite/kernels/swiglu.h"
#include "expedite/model/parameters.h"
#include "expedite/moe/dispatch_plan.h"
#include "expedite/tensor/arena.h"

namespace expedite::model {

/// What the kernels that choose experts need to know of a model.
[[nodiscard]] kernels::RouterOptions router_options(const ModelConfig& config);

/// The activation of a model's experts.
[[nodiscard]] kernels::GluOptions glu_options(const ModelConfig& config);

/// What the router keeps for backward. T tokens, E experts, k choices.
struct RouterActivations {
  TensorView normed;       // [T, H]
  TensorView inverse_rms;  // f32 [T]
  TensorView logits;       // f32 [T, E]
  TensorView scores;       // f32 [T, E]
  TensorView experts;      // i32 [T, k]
  TensorView weights;      // f32 [T, k]

  RouterActivations(Arena& arena, const ModelConfig& config, std::int64_t tokens, DType dtype);
};

/// Token rows on their way, or their gradients, each with the gate weights of its token, or their gradients.
struct GatedRows {
  TensorView rows;   // [R, H]
  TensorView gates;  // f32 [R, k]

  GatedRows(Arena& arena, const ModelConfig& config, std::int64_t rows, DType dtype);
};

/// Token rows in expert order, each with the gate weight of its expert.
struct ExpertInput {
  TensorView rows;     // [R, H]
  TensorView weights;  // f32 [R]

  ExpertInput(Arena& arena, const ModelConfig& config, std::int64_t rows, DType dtype);
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

// Experts, with R rows in `blocks` and F the expert FFN size. The gate weight goes into the activation, so
// that outputs are weighted already and need not be kept.

/// gate_up [R, 2F] = both products of the input, with their biases.
void experts_gate_up(const MoeWeights& weights, const kernels::RowBlocks& blocks, const ExpertInput& input,
                     TensorView gate_up);

/// activated [R, F], weighted.
void experts_activate(const kernels::GluOptions& activation, const kernels::RowBlocks& blocks,
                      const ExpertInput& input, ConstTensorView gate_up, TensorView activated);

/// output = down(activated), with its weighted bias, from the rows in `blocks` to those in `output_blocks`.
void experts_forward(const MoeWeights& weights, const kernels::RowBlocks& blocks, const ExpertInput& input,
                     ConstTensorView activated, const kernels::RowBlocks& output_blocks, TensorView output);

/// The gradients of gate_up (in `blocks`; may be gate_up's memory), and of the input and the gate weights,
/// f32 [R] (in `input_blocks`), from grad_output (in `blocks`), whose padding rows must be zero.
void experts_input_grad(const kernels::GluOptions& activation, const MoeWeights& weights,
                        const kernels::RowBlocks& blocks, const ExpertInput& input, ConstTensorView gate_up,
                        ConstTensorView grad_output, TensorView grad_gate_up,
                        const kernels::RowBlocks& input_blocks, TensorView grad_input,
                        TensorView grad_weights, MemoryPool& pool);

void experts_weight_grad(MoeWeights& weights, const kernels::RowBlocks& blocks, const ExpertInput& input,
                         ConstTensorView activated, ConstTensorView grad_output,
                         ConstTensorView grad_gate_up);

}  // namespace expedite::model
