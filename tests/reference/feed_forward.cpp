#include "tests/reference/feed_forward.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/reference/moe.h"
#include "tests/reference/projection.h"
#include "tests/reference/shared_expert.h"
#include "tests/reference/swiglu.h"

namespace expedite::reference {
namespace {

using hf::ParameterNames;

// Of one feed-forward network.
struct Names {
  std::string gate;
  std::string up;
  std::string down;
};

Names dense_names(std::int64_t layer) {
  return {hf::ParameterNames::dense_gate(layer), hf::ParameterNames::dense_up(layer),
          hf::ParameterNames::dense_down(layer)};
}

Names shared_names(const Context& context, std::int64_t layer) {
  return {context.names.shared_gate(layer), context.names.shared_up(layer), context.names.shared_down(layer)};
}

Names expert_names(const Context& context, std::int64_t layer, std::int64_t expert) {
  return {context.names.expert_gate(layer, expert), context.names.expert_up(layer, expert),
          context.names.expert_down(layer, expert)};
}

SwigluWeights weights_of(const Context& context, const Names& names) {
  const Parameters& parameters = context.parameters;
  SwigluWeights weights{parameters.at(names.gate),     parameters.at(names.up),
                        parameters.at(names.down),     bias_of(parameters, names.gate),
                        bias_of(parameters, names.up), bias_of(parameters, names.down)};
  if (context.config.mlp == architecture::MlpKind::clamped) {
    weights.clamp = Clamp{context.config.swiglu_alpha, context.config.swiglu_limit};
  }
  return weights;
}

SwigluGradients gradients_of(Gradients& gradients, const Names& names) {
  return {gradients.at(names.gate),           gradients.at(names.up),
          gradients.at(names.down),           bias_gradient(gradients, names.gate),
          bias_gradient(gradients, names.up), bias_gradient(gradients, names.down)};
}

std::vector<SwigluWeights> expert_weights(const Context& context, std::int64_t layer) {
  std::vector<SwigluWeights> experts;
  for (std::int64_t e = 0; e < context.config.experts; ++e) {
    experts.push_back(weights_of(context, expert_names(context, layer, e)));
  }
  return experts;
}

std::vector<SwigluGradients> expert_gradients(const Context& context, std::int64_t layer,
                                              Gradients& gradients) {
  std::vector<SwigluGradients> experts;
  for (std::int64_t e = 0; e < context.config.experts; ++e) {
    experts.push_back(gradients_of(gradients, expert_names(context, layer, e)));
  }
  return experts;
}

SharedExpertWeights shared_weights(const Context& context, std::int64_t layer) {
  SharedExpertWeights weights{weights_of(context, shared_names(context, layer)), {}};
  if (context.config.shared_expert_gate) {
    weights.gate = context.parameters.at(hf::ParameterNames::shared_expert_gate(layer));
  }
  return weights;
}

SharedExpertGradients shared_gradients(const Context& context, std::int64_t layer, Gradients& gradients) {
  SharedExpertGradients result{gradients_of(gradients, shared_names(context, layer)), {}};
  if (context.config.shared_expert_gate) {
    result.gate = gradients.at(hf::ParameterNames::shared_expert_gate(layer));
  }
  return result;
}

std::span<const double> selection_bias(const Context& context, std::int64_t layer) {
  return context.config.expert_bias
             ? std::span<const double>(context.parameters.at(context.names.selection_bias(layer)))
             : std::span<const double>();
}

}  // namespace

RouterShape router_shape(const ModelConfig& config) {
  return {.top_k = config.experts_per_token,
          .sigmoid = config.scoring == architecture::Scoring::sigmoid,
          .renormalize = config.norm_topk_prob,
          .scaling_factor = config.routed_scaling_factor,
          .groups = config.expert_groups,
          .top_groups = config.top_groups,
          .group_by_best = config.group_score == architecture::GroupScore::best};
}

Matrix feed_forward(const Context& context, std::int64_t layer, const Matrix& x, Routing& routing) {
  if (!context.config.sparse[layer]) {
    return swiglu(x, weights_of(context, dense_names(layer)));
  }
  routing = route(project(context.parameters, context.names.router(layer), x), selection_bias(context, layer),
                  router_shape(context.config));
  Matrix output = mixture(x, routing, expert_weights(context, layer));
  if (context.config.shared_expert_intermediate_size > 0) {
    output += shared_expert(x, shared_weights(context, layer));
  }
  return output;
}

Matrix feed_forward_backward(const Context& context, std::int64_t layer, const Matrix& x,
                             const Routing& routing, const Matrix& dy, const Matrix& drouter_logits,
                             Gradients& gradients) {
  if (!context.config.sparse[layer]) {
    const Names names = dense_names(layer);
    return swiglu_backward(dy, x, weights_of(context, names), gradients_of(gradients, names));
  }
  const RouterShape shape = router_shape(context.config);
  MixtureGradients mixed = mixture_backward(dy, x, routing, expert_weights(context, layer),
                                            expert_gradients(context, layer, gradients));
  Matrix dlogits = scores_backward(weights_backward(mixed.dweights, routing, shape), routing, shape);
  if (!drouter_logits.values.empty()) {
    dlogits += drouter_logits;
  }
  mixed.dx += project_backward(context.parameters, context.names.router(layer), dlogits, x, gradients);
  if (context.config.shared_expert_intermediate_size > 0) {
    mixed.dx += shared_expert_backward(dy, x, shared_weights(context, layer),
                                       shared_gradients(context, layer, gradients));
  }
  return mixed.dx;
}

}  // namespace expedite::reference
