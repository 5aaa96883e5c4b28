#include "tests/reference/layer.h"

#include <span>
#include <string>
#include <string_view>

#include "tests/reference/attention.h"
#include "tests/reference/moe.h"
#include "tests/reference/norm.h"
#include "tests/reference/shared_expert.h"
#include "tests/reference/swiglu.h"

namespace expedite::reference {
namespace {

using model::ModelConfig;
using model::ParameterNames;

// A projection's parameters; the bias is empty where the model has none.
struct Projection {
  std::string weight;
  std::string bias;
};

Projection projection(const Context& context, std::int64_t layer, const char* name) {
  const bool is_output = std::string_view(name) == "o";
  const bool bias = is_output ? context.config.output_bias : context.config.qkv_bias;
  return {ParameterNames::attention_weight(layer, name),
          bias ? ParameterNames::attention_bias(layer, name) : ""};
}

Matrix project(const Context& context, std::int64_t layer, const char* name, const Matrix& x) {
  const Projection names = projection(context, layer, name);
  const std::span<const double> bias =
      names.bias.empty() ? std::span<const double>() : context.parameters.at(names.bias);
  return linear(x, context.parameters.at(names.weight), bias);
}

Matrix project_backward(const Context& context, std::int64_t layer, const char* name, const Matrix& dy,
                        const Matrix& x, Gradients& gradients) {
  const Projection names = projection(context, layer, name);
  const std::span<double> dbias = names.bias.empty() ? std::span<double>() : gradients.at(names.bias);
  return linear_backward(dy, x, context.parameters.at(names.weight), gradients.at(names.weight), dbias);
}

// RMSNorm of each head.
Matrix head_norm(const Context& context, const std::string& weight, const Matrix& x) {
  const std::int64_t head_dim = context.config.head_dim;
  return rms_norm(x.reshaped(x.rows * x.columns / head_dim, head_dim), context.parameters.at(weight),
                  context.config.rms_norm_eps)
      .reshaped(x.rows, x.columns);
}

Matrix head_norm_backward(const Context& context, const std::string& weight, const Matrix& dy,
                          const Matrix& x, Gradients& gradients) {
  const std::int64_t head_dim = context.config.head_dim;
  const std::int64_t rows = x.rows * x.columns / head_dim;
  return rms_norm_backward(dy.reshaped(rows, head_dim), x.reshaped(rows, head_dim),
                           context.parameters.at(weight), context.config.rms_norm_eps, gradients.at(weight))
      .reshaped(x.rows, x.columns);
}

AttentionShape attention_shape(const ModelConfig& config) {
  return {config.heads, config.kv_heads, config.head_dim, config.sliding_window};
}

Matrix attention_block(const Context& context, std::int64_t layer, LayerTrace& trace) {
  const Matrix& x = trace.attention_input;
  trace.raw_query = project(context, layer, "q", x);
  trace.raw_key = project(context, layer, "k", x);
  trace.value = project(context, layer, "v", x);
  trace.query = trace.raw_query;
  trace.key = trace.raw_key;
  if (context.config.qk_norm) {
    trace.query = head_norm(context, ParameterNames::query_norm(layer), trace.query);
    trace.key = head_norm(context, ParameterNames::key_norm(layer), trace.key);
  }
  trace.query = rotate(trace.query, context.positions, context.rotary);
  trace.key = rotate(trace.key, context.positions, context.rotary);
  trace.mixed =
      attention(trace.query, trace.key, trace.value, context.bounds, attention_shape(context.config));
  return project(context, layer, "o", trace.mixed);
}

Matrix attention_block_backward(const Context& context, std::int64_t layer, const LayerTrace& trace,
                                const Matrix& doutput, Gradients& gradients) {
  const Matrix dmixed = project_backward(context, layer, "o", doutput, trace.mixed, gradients);
  auto [dq, dk, dv] = attention_backward(dmixed, trace.query, trace.key, trace.value, context.bounds,
                                         attention_shape(context.config));
  dq = rotate_backward(dq, context.positions, context.rotary);
  dk = rotate_backward(dk, context.positions, context.rotary);
  if (context.config.qk_norm) {
    dq = head_norm_backward(context, ParameterNames::query_norm(layer), dq, trace.raw_query, gradients);
    dk = head_norm_backward(context, ParameterNames::key_norm(layer), dk, trace.raw_key, gradients);
  }
  const Matrix& x = trace.attention_input;
  Matrix dx = project_backward(context, layer, "q", dq, x, gradients);
  dx += project_backward(context, layer, "k", dk, x, gradients);
  dx += project_backward(context, layer, "v", dv, x, gradients);
  return dx;
}

SwigluWeights dense_weights(const Context& context, std::int64_t layer) {
  return {context.parameters.at(ParameterNames::dense_gate(layer)),
          context.parameters.at(ParameterNames::dense_up(layer)),
          context.parameters.at(ParameterNames::dense_down(layer))};
}

SwigluGradients dense_gradients(std::int64_t layer, Gradients& gradients) {
  return {gradients.at(ParameterNames::dense_gate(layer)), gradients.at(ParameterNames::dense_up(layer)),
          gradients.at(ParameterNames::dense_down(layer))};
}

std::vector<SwigluWeights> expert_weights(const Context& context, std::int64_t layer) {
  std::vector<SwigluWeights> experts;
  for (std::int64_t e = 0; e < context.config.experts; ++e) {
    experts.push_back({context.parameters.at(context.names.expert_gate(layer, e)),
                       context.parameters.at(context.names.expert_up(layer, e)),
                       context.parameters.at(context.names.expert_down(layer, e))});
  }
  return experts;
}

std::vector<SwigluGradients> expert_gradients(const Context& context, std::int64_t layer,
                                              Gradients& gradients) {
  std::vector<SwigluGradients> experts;
  for (std::int64_t e = 0; e < context.config.experts; ++e) {
    experts.push_back({gradients.at(context.names.expert_gate(layer, e)),
                       gradients.at(context.names.expert_up(layer, e)),
                       gradients.at(context.names.expert_down(layer, e))});
  }
  return experts;
}

SharedExpertWeights shared_weights(const Context& context, std::int64_t layer) {
  const Parameters& parameters = context.parameters;
  return {{parameters.at(context.names.shared_gate(layer)), parameters.at(context.names.shared_up(layer)),
           parameters.at(context.names.shared_down(layer))},
          context.config.shared_expert_gate
              ? std::span<const double>(parameters.at(ParameterNames::shared_expert_gate(layer)))
              : std::span<const double>()};
}

SharedExpertGradients shared_gradients(const Context& context, std::int64_t layer, Gradients& gradients) {
  return {{gradients.at(context.names.shared_gate(layer)), gradients.at(context.names.shared_up(layer)),
           gradients.at(context.names.shared_down(layer))},
          context.config.shared_expert_gate
              ? std::span<double>(gradients.at(ParameterNames::shared_expert_gate(layer)))
              : std::span<double>()};
}

Matrix sparse_block(const Context& context, std::int64_t layer, LayerTrace& trace) {
  const std::span<const double> bias =
      context.config.expert_bias
          ? std::span<const double>(context.parameters.at(context.names.selection_bias(layer)))
          : std::span<const double>();
  trace.routing = route(linear(trace.ffn_input, context.parameters.at(context.names.router(layer))), bias,
                        router_shape(context.config));
  Matrix output = mixture(trace.ffn_input, trace.routing, expert_weights(context, layer));
  if (context.config.shared_expert_intermediate_size > 0) {
    output += shared_expert(trace.ffn_input, shared_weights(context, layer));
  }
  return output;
}

Matrix sparse_block_backward(const Context& context, std::int64_t layer, const LayerTrace& trace,
                             const Matrix& doutput, const Matrix& drouter_logits, Gradients& gradients) {
  const RouterShape shape = router_shape(context.config);
  MixtureGradients mixed =
      mixture_backward(doutput, trace.ffn_input, trace.routing, expert_weights(context, layer),
                       expert_gradients(context, layer, gradients));
  Matrix dlogits =
      scores_backward(weights_backward(mixed.dweights, trace.routing, shape), trace.routing, shape);
  if (!drouter_logits.values.empty()) {
    dlogits += drouter_logits;
  }
  const std::string router = context.names.router(layer);
  mixed.dx += linear_backward(dlogits, trace.ffn_input, context.parameters.at(router), gradients.at(router));
  if (context.config.shared_expert_intermediate_size > 0) {
    mixed.dx += shared_expert_backward(doutput, trace.ffn_input, shared_weights(context, layer),
                                       shared_gradients(context, layer, gradients));
  }
  return mixed.dx;
}

}  // namespace

RouterShape router_shape(const ModelConfig& config) {
  return {.top_k = config.experts_per_token,
          .sigmoid = config.scoring == kernels::Scoring::sigmoid,
          .renormalize = config.norm_topk_prob,
          .scaling_factor = config.routed_scaling_factor,
          .groups = config.expert_groups,
          .top_groups = config.top_groups};
}

LayerTrace layer_forward(const Context& context, std::int64_t layer, const Matrix& input) {
  const double epsilon = context.config.rms_norm_eps;
  LayerTrace trace;
  trace.input = input;
  trace.attention_input = rms_norm(input, context.parameters.at(ParameterNames::input_norm(layer)), epsilon);
  trace.after_attention = attention_block(context, layer, trace);
  trace.after_attention += input;
  trace.ffn_input = rms_norm(trace.after_attention,
                             context.parameters.at(ParameterNames::post_attention_norm(layer)), epsilon);
  trace.output = context.config.sparse[layer] ? sparse_block(context, layer, trace)
                                              : swiglu(trace.ffn_input, dense_weights(context, layer));
  trace.output += trace.after_attention;
  return trace;
}

Matrix layer_backward(const Context& context, std::int64_t layer, const LayerTrace& trace,
                      const Matrix& doutput, const Matrix& drouter_logits, Gradients& gradients) {
  const double epsilon = context.config.rms_norm_eps;
  const Matrix dffn_input =
      context.config.sparse[layer]
          ? sparse_block_backward(context, layer, trace, doutput, drouter_logits, gradients)
          : swiglu_backward(doutput, trace.ffn_input, dense_weights(context, layer),
                            dense_gradients(layer, gradients));
  const std::string ffn_norm = ParameterNames::post_attention_norm(layer);
  Matrix dafter_attention = rms_norm_backward(
      dffn_input, trace.after_attention, context.parameters.at(ffn_norm), epsilon, gradients.at(ffn_norm));
  dafter_attention += doutput;
  const Matrix dattention_input =
      attention_block_backward(context, layer, trace, dafter_attention, gradients);
  const std::string attention_norm = ParameterNames::input_norm(layer);
  Matrix dinput = rms_norm_backward(dattention_input, trace.input, context.parameters.at(attention_norm),
                                    epsilon, gradients.at(attention_norm));
  dinput += dafter_attention;
  return dinput;
}

}  // namespace expedite::reference
