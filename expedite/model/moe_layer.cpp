#include "expedite/model/moe_layer.h"

#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/matmul.h"
#include "expedite/kernels/rms_norm.h"
#include "expedite/kernels/router.h"
#include "expedite/kernels/swiglu.h"

namespace expedite::model {
namespace {

kernels::RouterOptions router_options(const ModelConfig& config) {
  return {.top_k = config.experts_per_token,
          .scoring = config.scoring,
          .renormalize = config.norm_topk_prob,
          .scaling_factor = config.routed_scaling_factor};
}

/// The fp32 router reads fp32 rows: these, converted if they are not.
ConstTensorView as_f32(ConstTensorView x, Buffer& scratch, MemoryPool& pool) {
  if (x.dtype() == DType::f32) {
    return x;
  }
  scratch = pool.allocate(x.elements() * size_of(DType::f32), MemoryCategory::workspace);
  const TensorView converted = scratch.view(DType::f32, x.shape());
  kernels::convert(x, converted);
  return converted;
}

}  // namespace

RouterActivations::RouterActivations(Arena& arena, const ModelConfig& config, std::int64_t tokens,
                                     DType dtype)
    : normed(arena.take(dtype, {tokens, config.hidden_size})),
      inverse_rms(arena.take(DType::f32, {tokens})),
      logits(arena.take(DType::f32, {tokens, config.experts})),
      scores(arena.take(DType::f32, {tokens, config.experts})),
      experts(arena.take(DType::i32, {tokens, config.experts_per_token})),
      weights(arena.take(DType::f32, {tokens, config.experts_per_token})),
      position(arena.take(DType::i32, {tokens, config.experts_per_token})) {}

ExpertActivations::ExpertActivations(Arena& arena, const ModelConfig& config, std::int64_t rows, DType dtype)
    : gate_up(arena.take(dtype, {rows, 2 * config.moe_intermediate_size})),
      activated(arena.take(dtype, {rows, config.moe_intermediate_size})) {}

void router_forward(const ModelConfig& config, const LayerWeights& weights, ConstTensorView mid,
                    RouterActivations& kept, MemoryPool& pool) {
  kernels::rms_norm(mid, weights.mlp_norm->weight, config.rms_norm_eps, kept.normed, kept.inverse_rms);
  Buffer scratch;
  kernels::matmul(as_f32(kept.normed, scratch, pool), weights.moe.router->weight, kept.logits,
                  {.transpose_b = true});
  kernels::route(kept.logits, weights.moe.selection_bias, router_options(config), kept.scores, kept.experts,
                 kept.weights);
}

void gate_backward(const ModelConfig& config, const RouterActivations& kept, ConstTensorView grad_weights,
                   TensorView grad_logits) {
  kernels::route_backward(grad_weights, kept.scores, kept.experts, router_options(config), grad_logits);
}

void router_backward(LayerWeights& weights, ConstTensorView mid, const RouterActivations& kept,
                     ConstTensorView grad_logits, ConstTensorView grad_hidden, TensorView grad_mid,
                     MemoryPool& pool) {
  Buffer scratch;
  kernels::matmul(grad_logits, as_f32(kept.normed, scratch, pool), weights.moe.router->gradient,
                  {.transpose_a = true, .accumulate = true});
  const Buffer through_router =
      pool.allocate(grad_mid.elements() * size_of(DType::f32), MemoryCategory::workspace);
  const TensorView grad_normed = through_router.view(DType::f32, grad_mid.shape());
  kernels::matmul(grad_logits, weights.moe.router->weight, grad_normed);
  kernels::add(grad_normed, grad_mid);
  kernels::rms_norm_backward(grad_mid, mid, weights.mlp_norm->weight, kept.inverse_rms, grad_mid, false,
                             weights.mlp_norm->gradient);
  kernels::add(grad_hidden, grad_mid);
}

void experts_forward(const MoeWeights& weights, const kernels::RowGroups& groups, ConstTensorView input,
                     ExpertActivations& kept, TensorView output) {
  kernels::grouped_matmul(groups, input, weights.gate_up->weight, kept.gate_up);
  kernels::swiglu(kept.gate_up, kept.activated);
  kernels::grouped_matmul(groups, kept.activated, weights.down->weight, output);
}

void experts_input_grad(const MoeWeights& weights, const kernels::RowGroups& groups,
                        const ExpertActivations& kept, ConstTensorView grad_output, TensorView grad_gate_up,
                        TensorView grad_input, MemoryPool& pool) {
  const Buffer scratch = pool.allocate(kept.activated.bytes(), MemoryCategory::workspace);
  const TensorView grad_activated = scratch.view(kept.activated.dtype(), kept.activated.shape());
  kernels::grouped_matmul_input_grad(groups, grad_output, weights.down->weight, grad_activated);
  kernels::swiglu_backward(grad_activated, kept.gate_up, grad_gate_up);
  kernels::grouped_matmul_input_grad(groups, grad_gate_up, weights.gate_up->weight, grad_input);
}

void experts_weight_grad(MoeWeights& weights, const kernels::RowGroups& groups, ConstTensorView input,
                         const ExpertActivations& kept, ConstTensorView grad_output,
                         ConstTensorView grad_gate_up) {
  kernels::grouped_matmul_weight_grad(groups, grad_output, kept.activated, weights.down->gradient, true);
  kernels::grouped_matmul_weight_grad(groups, grad_gate_up, input, weights.gate_up->gradient, true);
}

}  // namespace expedite::model
