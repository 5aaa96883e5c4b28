#include "expedite/model/moe_layer.h"

#include <vector>

#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/grouped_bias.h"
#include "expedite/kernels/grouped_matmul.h"
#include "expedite/kernels/matmul.h"
#include "expedite/kernels/rms_norm.h"
#include "expedite/kernels/router.h"
#include "expedite/kernels/swiglu.h"
#include "expedite/model/as_f32.h"

namespace expedite::model {
namespace {

ConstTensorView readable(const TensorView& view) {
  return view;
}

}  // namespace

kernels::RouterOptions router_options(const ModelConfig& config) {
  return {.top_k = config.experts_per_token,
          .scoring = config.scoring == architecture::Scoring::softmax ? kernels::Scoring::softmax
                                                                      : kernels::Scoring::sigmoid,
          .renormalize = config.norm_topk_prob,
          .scaling_factor = config.routed_scaling_factor,
          .groups = config.expert_groups,
          .top_groups = config.top_groups,
          .group_score = config.group_score == architecture::GroupScore::best
                             ? kernels::GroupScore::best
                             : kernels::GroupScore::best_two};
}

kernels::GluOptions glu_options(const ModelConfig& config) {
  return config.mlp == architecture::MlpKind::clamped ? kernels::GluOptions{.alpha = config.swiglu_alpha,
                                                                            .limit = config.swiglu_limit,
                                                                            .up_offset = 1.0F}
                                                      : kernels::GluOptions{};
}

RouterActivations::RouterActivations(Arena& arena, const ModelConfig& config, std::int64_t tokens,
                                     DType dtype)
    : normed(arena.take(dtype, {tokens, config.hidden_size})),
      inverse_rms(arena.take(DType::f32, {tokens})),
      logits(arena.take(DType::f32, {tokens, config.experts})),
      scores(arena.take(DType::f32, {tokens, config.experts})),
      experts(arena.take(DType::i32, {tokens, config.experts_per_token})),
      weights(arena.take(DType::f32, {tokens, config.experts_per_token})) {}

GatedRows::GatedRows(Arena& arena, const ModelConfig& config, std::int64_t row_count, DType dtype)
    : rows(arena.take(dtype, {row_count, config.hidden_size})),
      gates(arena.take(DType::f32, {row_count, config.experts_per_token})) {}

ExpertInput::ExpertInput(Arena& arena, const ModelConfig& config, std::int64_t row_count, DType dtype)
    : rows(arena.take(dtype, {row_count, config.hidden_size})),
      weights(arena.take(DType::f32, {row_count})) {}

void router_forward(const ModelConfig& config, const LayerWeights& weights, ConstTensorView mid,
                    RouterActivations& kept, MemoryPool& pool) {
  kernels::rms_norm(mid, weights.mlp_norm->weight, config.rms_norm_eps, kept.normed, kept.inverse_rms);
  Buffer scratch;
  kernels::matmul(as_f32(kept.normed, scratch, pool), weights.moe.router->weight, kept.logits,
                  {.transpose_b = true});
  if (weights.moe.router_bias != nullptr) {
    kernels::add_bias(weights.moe.router_bias->weight, kept.logits);
  }
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
  if (weights.moe.router_bias != nullptr) {
    kernels::bias_backward(grad_logits, weights.moe.router_bias->gradient);
  }
  const Buffer through_router =
      pool.allocate(grad_mid.elements() * size_of(DType::f32), MemoryCategory::workspace);
  const TensorView grad_normed = through_router.view(DType::f32, grad_mid.shape());
  kernels::matmul(grad_logits, weights.moe.router->weight, grad_normed);
  kernels::add(grad_normed, grad_mid);
  kernels::rms_norm_backward(grad_mid, mid, weights.mlp_norm->weight, kept.inverse_rms, grad_mid, false,
                             weights.mlp_norm->gradient);
  kernels::add(grad_hidden, grad_mid);
}

namespace {

/// The gate weights of each expert's rows.
std::vector<ConstTensorView> weights_of(const ExpertInput& input, const kernels::RowBlocks& blocks) {
  std::vector<ConstTensorView> weights;
  for (std::size_t e = 0; e < blocks.begin.size(); ++e) {
    weights.emplace_back(input.weights.slice(blocks.begin[e], blocks.rows[e]));
  }
  return weights;
}

}  // namespace

void experts_gate_up(const MoeWeights& weights, const kernels::RowBlocks& blocks, const ExpertInput& input,
                     TensorView gate_up) {
  const std::vector<TensorView> products = kernels::blocks_of(gate_up, blocks);
  kernels::grouped_matmul(kernels::blocks_of(readable(input.rows), blocks), weights.gate_up->weight,
                          products);
  if (weights.gate_up_bias != nullptr) {
    kernels::grouped_bias(weights.gate_up_bias->weight, {}, products);
  }
}

void experts_activate(const kernels::GluOptions& activation, const kernels::RowBlocks& blocks,
                      const ExpertInput& input, ConstTensorView gate_up, TensorView activated) {
  for (std::size_t e = 0; e < blocks.begin.size(); ++e) {
    const std::int64_t begin = blocks.begin[e];
    const std::int64_t rows = blocks.rows[e];
    kernels::swiglu(gate_up.slice(begin, rows), input.weights.slice(begin, rows),
                    activated.slice(begin, rows), activation);
  }
}

void experts_forward(const MoeWeights& weights, const kernels::RowBlocks& blocks, const ExpertInput& input,
                     ConstTensorView activated, const kernels::RowBlocks& output_blocks, TensorView output) {
  const std::vector<TensorView> products = kernels::blocks_of(output, output_blocks);
  kernels::grouped_matmul(kernels::blocks_of(activated, blocks), weights.down->weight, products);
  if (weights.down_bias != nullptr) {
    kernels::grouped_bias(weights.down_bias->weight, weights_of(input, blocks), products);
  }
}

void experts_input_grad(const kernels::GluOptions& activation, const MoeWeights& weights,
                        const kernels::RowBlocks& blocks, const ExpertInput& input, ConstTensorView gate_up,
                        ConstTensorView grad_output, TensorView grad_gate_up,
                        const kernels::RowBlocks& input_blocks, TensorView grad_input,
                        TensorView grad_weights, MemoryPool& pool) {
  const DType dtype = gate_up.dtype();
  const Shape shape = {input_blocks.total, gate_up.columns() / 2};
  const Buffer scratch = pool.allocate(shape.elements() * size_of(dtype), MemoryCategory::expert_activations);
  const std::vector<TensorView> grad_activated = kernels::blocks_of(scratch.view(dtype, shape), input_blocks);
  kernels::grouped_matmul_input_grad(kernels::blocks_of(grad_output, blocks), weights.down->weight,
                                     grad_activated);
  std::vector<TensorView> grad_weights_of;
  for (std::size_t e = 0; e < grad_activated.size(); ++e) {
    const std::int64_t begin = blocks.begin[e];
    const std::int64_t rows = blocks.rows[e];
    grad_weights_of.push_back(grad_weights.slice(input_blocks.begin[e], rows));
    kernels::swiglu_backward(grad_activated[e], gate_up.slice(begin, rows), input.weights.slice(begin, rows),
                             grad_gate_up.slice(begin, rows), grad_weights_of.back(), activation);
  }
  if (weights.down_bias != nullptr) {
    kernels::grouped_bias_input_grad(kernels::blocks_of(grad_output, blocks), weights.down_bias->weight,
                                     grad_weights_of);
  }
  kernels::grouped_matmul_input_grad(kernels::blocks_of(readable(grad_gate_up), blocks),
                                     weights.gate_up->weight, kernels::blocks_of(grad_input, input_blocks));
}

void experts_weight_grad(MoeWeights& weights, const kernels::RowBlocks& blocks, const ExpertInput& input,
                         ConstTensorView activated, ConstTensorView grad_output,
                         ConstTensorView grad_gate_up) {
  const std::vector<ConstTensorView> dy = kernels::blocks_of(grad_output, blocks);
  const std::vector<ConstTensorView> dgate_up = kernels::blocks_of(grad_gate_up, blocks);
  kernels::grouped_matmul_weight_grad(dy, kernels::blocks_of(activated, blocks), weights.down->gradient,
                                      true);
  kernels::grouped_matmul_weight_grad(dgate_up, kernels::blocks_of(readable(input.rows), blocks),
                                      weights.gate_up->gradient, true);
  if (weights.down_bias != nullptr) {
    kernels::grouped_bias_weight_grad(dy, weights_of(input, blocks), weights.down_bias->gradient);
    kernels::grouped_bias_weight_grad(dgate_up, {}, weights.gate_up_bias->gradient);
  }
}

}  // namespace expedite::model
