// How much memory a rank needs at its peak, by what it holds.
#pragma once

#include <cstdint>

#include "expedite/plan/layer_cost.h"
#include "expedite/plan/stages.h"
#include "expedite/plan/strategy.h"

namespace expedite::plan {

inline constexpr double kGib = 1024.0 * 1024.0 * 1024.0;  // bytes

/// Bytes at the peak of the fullest stage's rank.
struct Memory {
  double weights = 0.0;
  double gradients = 0.0;
  double optimizer = 0.0;
  double activations = 0.0;
  double expert_activations = 0.0;
  double communication = 0.0;
  double logits = 0.0;
  double allocator = 0.0;  // fragments and buffers of libraries

  [[nodiscard]] double total() const {
    return weights + gradients + optimizer + activations + expert_activations + communication + logits +
           allocator;
  }
};

/// Parameters (not bytes): those over which data-parallel ranks agree,
/// and those of experts.
struct ParameterBytes {
  double dense = 0.0;
  double experts = 0.0;
};

/// Sources: parameters, gradients and optimizer, Rajbhandari et al. (2020, arXiv:1910.02054) with 16-bit
/// weights, 32-bit gradients, master weights and two moments; activations, Korthikanti et al. (2022,
/// arXiv:2205.05198), without the scores where attention is fused; micro-batches in flight, Narayanan et al.
/// (2021, arXiv:2104.04473), Qi et al. (2024, arXiv:2401.10241), DeepSeek-AI (2024, arXiv:2412.19437).
class MemoryModel {
 public:
  explicit MemoryModel(const CostContext& context);

  /// On the rank of the stage with the most.
  [[nodiscard]] ParameterBytes parameters(const Strategy& strategy, const Stages& stages) const;
  [[nodiscard]] Memory peak(const Strategy& strategy, const Stages& stages) const;

  /// Of one stage, without the allocator.
  [[nodiscard]] Memory of_stage(const Strategy& strategy, const Stages& stages, int stage) const;
  /// What a rank holds through the whole step.
  [[nodiscard]] Memory held(const Strategy& strategy, const ParameterBytes& parameters) const;
  /// Bytes of the head's output.
  [[nodiscard]] double logits(const Strategy& strategy) const;
  /// Of one piece of the model on a rank.
  [[nodiscard]] ParameterBytes layer_parameters(const Strategy& strategy, architecture::LayerKind kind) const;
  [[nodiscard]] ParameterBytes projection_parameters(const Strategy& strategy) const;
  [[nodiscard]] ParameterBytes embedding_parameters(const Strategy& strategy) const;
  [[nodiscard]] ParameterBytes head_parameters(const Strategy& strategy) const;

 private:
  /// Bytes that backward needs of one micro-batch in one layer: of attention with both norms, of a dense MLP,
  /// of experts with router and shared experts.
  struct LayerActivations {
    double attention = 0.0;
    double dense_mlp = 0.0;
    double moe = 0.0;
  };
  [[nodiscard]] LayerActivations whole_layer(const Strategy& strategy) const;
  /// Where programs select products (Software::selects_products): the layer's input, what attention and
  /// all-to-alls return, and every other product but those of experts, which are made again.
  [[nodiscard]] LayerActivations selected_products(const Strategy& strategy) const;
  [[nodiscard]] LayerActivations kept_of_layer(const Strategy& strategy, const LayerActivations& whole) const;
  /// Tokens that a rank routes, and tokens that it normalises; rows of its experts.
  [[nodiscard]] double own_tokens(const Strategy& strategy) const;
  [[nodiscard]] double shared_tokens(const Strategy& strategy) const;
  [[nodiscard]] double expert_rows(const Strategy& strategy) const;
  [[nodiscard]] ParameterBytes stage_parameters(const Strategy& strategy, const Stages& stages,
                                                int stage) const;

  const CostContext& context_;
  double attention_parameters_;  // of a layer, with norms
  double dense_mlp_parameters_;
  double moe_shared_parameters_;  // of a layer besides its routed experts
  double expert_parameters_;      // of all routed experts of a layer
  double embedding_;
  double head_;
  double prediction_;  // of a multi-token prediction layer besides its layer
};

/// Micro-batches of which stage `stage` holds activations at its fullest, in layers of the whole stage.
[[nodiscard]] double micro_batches_in_flight(const Strategy& strategy, int stage, double micro_batches);

}  // namespace expedite::plan
