// The router of an MoE layer, in fp32: scores, top-k choice, gate weights, and the losses that keep it
// balanced.
#pragma once

#include <cstdint>
#include <span>

#include "expedite/tensor/view.h"

namespace expedite::kernels {

enum class Scoring : std::uint8_t { softmax, sigmoid };

/// What a group of experts is judged by: the sum of its two best scores (DeepSeek-V3), or its best
/// (DeepSeek-V2's group_limited_greedy).
enum class GroupScore : std::uint8_t { best_two, best };

struct RouterOptions {
  std::int64_t top_k = 1;
  Scoring scoring = Scoring::softmax;
  bool renormalize = true;      // the k weights of a token are divided by their sum
  float scaling_factor = 1.0F;  // multiplies the weights, after that
  std::int64_t groups = 1;      // neighbouring experts, as many in each; 2 or more to judge by the best two
  std::int64_t top_groups = 1;  // a token chooses among the experts of so many groups
  GroupScore group_score = GroupScore::best_two;
};

/// logits: f32 [T, E]. selection_bias: f32 [E] or empty; added to the scores for the choice only, never to
/// weights (DeepSeek-V3's balancing without auxiliary loss). Of equal scores the lower expert wins. scores:
/// f32 [T, E]; experts: i32 [T, k], by falling score, all different; weights: f32 [T, k]. Throws Error naming
/// the first row whose logits are not finite, before anything is used.
///
/// With groups the top_groups best stay, of equals the lower; k is at most the experts in them. `best_two`
/// (DeepSeek-V3, DeepSeek-AI, 2024, arXiv:2412.19437): a group's score is the sum of its two best biased
/// scores. In the other groups the biased scores count as 0, as in Hugging Face's models: where a negative
/// bias leaves fewer than k experts of the chosen groups above 0, experts of other groups come before those
/// below 0. `best` (DeepSeek-V2, 2024, arXiv:2405.04434): the best biased score, and no other group's expert
/// is chosen, not even for one whose score has vanished.
///
/// Softmax scores renormalised are the softmax over the chosen logits (gpt-oss, Mixtral). A sum that is
/// divided by has 1e-20 added, so that weights are 0 and not NaN when all chosen scores have vanished.
void route(ConstTensorView logits, std::span<const float> selection_bias, const RouterOptions& options,
           TensorView scores, TensorView experts, TensorView weights);

/// dlogits[T, E] (overwritten) from dweights[T, k]. The choice itself has no gradient.
void route_backward(ConstTensorView dweights, ConstTensorView scores, ConstTensorView experts,
                    const RouterOptions& options, TensorView dlogits);

/// counts[e] += tokens that chose e (in any of their k slots). i64 [E].
void count_experts(ConstTensorView experts, TensorView counts);

/// score_sums[e] += sum over tokens of scores[t, e], f64-accurate in a fixed order. double [E] as a span.
void sum_scores(ConstTensorView scores, std::span<double> score_sums);

/// Gradient of the load-balancing loss (Switch Transformer, Fedus et al., 2021) with respect to the logits,
/// added to dlogits[T, E], given d loss / d scores[t, e] = expert_gradient[e] for every token: softmax (or
/// sigmoid) backward.
void load_balance_backward(ConstTensorView scores, std::span<const float> expert_gradient, Scoring scoring,
                           TensorView dlogits);

/// Sum over tokens of log(sum(exp(logits)))² (ST-MoE's z-loss, Zoph et al., 2022); adds its gradient times
/// `gradient_scale` to dlogits unless that is empty.
[[nodiscard]] double z_loss(ConstTensorView logits, float gradient_scale, TensorView dlogits);

}  // namespace expedite::kernels
