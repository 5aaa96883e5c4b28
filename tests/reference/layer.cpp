#include "tests/reference/layer.h"

#include <span>
#include <string>

#include "tests/reference/attention.h"
#include "tests/reference/norm.h"
#include "tests/reference/projection.h"

namespace expedite::reference {
namespace {

using hf::ParameterNames;

bool is_latent(const Context& context) {
  return context.config.attention == architecture::AttentionKind::latent;
}

AttentionShape attention_shape(const ModelConfig& config, std::int64_t layer) {
  return {.heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .value_dim = config.value_dim,
          .scale = config.attention_scale,
          .window = config.window(layer)};
}

std::span<const double> sinks_of(const Context& context, std::int64_t layer) {
  return context.config.attention_sinks
             ? std::span<const double>(context.parameters.at(hf::ParameterNames::sinks(layer)))
             : std::span<const double>();
}

Matrix attention_block(const Context& context, std::int64_t layer, LayerTrace& trace) {
  const auto make_heads = is_latent(context) ? latent_heads : grouped_heads;
  trace.heads = make_heads(context, layer, trace.attention_input, trace.raw_heads);
  trace.mixed = attention(trace.heads.query, trace.heads.key, trace.heads.value, context.bounds,
                          attention_shape(context.config, layer), sinks_of(context, layer));
  return project(context.parameters, hf::ParameterNames::attention_weight(layer, "o"), trace.mixed);
}

Matrix attention_block_backward(const Context& context, std::int64_t layer, const LayerTrace& trace,
                                const Matrix& doutput, Gradients& gradients) {
  const Matrix dmixed = project_backward(context.parameters, hf::ParameterNames::attention_weight(layer, "o"),
                                         doutput, trace.mixed, gradients);
  const AttentionGradients dheads =
      attention_backward(dmixed, trace.heads.query, trace.heads.key, trace.heads.value, context.bounds,
                         attention_shape(context.config, layer), sinks_of(context, layer));
  for (std::size_t head = 0; head < dheads.dsinks.size(); ++head) {
    gradients.at(hf::ParameterNames::sinks(layer))[head] += dheads.dsinks[head];
  }
  const auto heads_backward = is_latent(context) ? latent_heads_backward : grouped_heads_backward;
  return heads_backward(context, layer, trace.attention_input, trace.raw_heads,
                        {dheads.dq, dheads.dk, dheads.dv}, gradients);
}

}  // namespace

LayerTrace layer_forward(const Context& context, std::int64_t layer, const Matrix& input) {
  const double epsilon = context.config.rms_norm_eps;
  LayerTrace trace;
  trace.input = input;
  trace.attention_input =
      rms_norm(input, context.parameters.at(hf::ParameterNames::input_norm(layer)), epsilon);
  trace.after_attention = attention_block(context, layer, trace);
  trace.after_attention += input;
  trace.ffn_input = rms_norm(trace.after_attention,
                             context.parameters.at(hf::ParameterNames::post_attention_norm(layer)), epsilon);
  trace.output = feed_forward(context, layer, trace.ffn_input, trace.routing);
  trace.output += trace.after_attention;
  return trace;
}

Matrix layer_backward(const Context& context, std::int64_t layer, const LayerTrace& trace,
                      const Matrix& doutput, const Matrix& drouter_logits, Gradients& gradients) {
  const double epsilon = context.config.rms_norm_eps;
  const Matrix dffn_input = feed_forward_backward(context, layer, trace.ffn_input, trace.routing, doutput,
                                                  drouter_logits, gradients);
  const std::string ffn_norm = hf::ParameterNames::post_attention_norm(layer);
  Matrix dafter_attention = rms_norm_backward(
      dffn_input, trace.after_attention, context.parameters.at(ffn_norm), epsilon, gradients.at(ffn_norm));
  dafter_attention += doutput;
  const Matrix dattention_input =
      attention_block_backward(context, layer, trace, dafter_attention, gradients);
  const std::string attention_norm = hf::ParameterNames::input_norm(layer);
  Matrix dinput = rms_norm_backward(dattention_input, trace.input, context.parameters.at(attention_norm),
                                    epsilon, gradients.at(attention_norm));
  dinput += dafter_attention;
  return dinput;
}

}  // namespace expedite::reference
