#include "tests/reference/model.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "expedite/base/error.h"
#include "expedite/hf/names.h"
#include "tests/reference/context.h"
#include "tests/reference/layer.h"
#include "tests/reference/loss.h"
#include "tests/reference/norm.h"
#include "tests/reference/separate_experts.h"

namespace expedite::reference {
namespace {

using hf::ParameterNames;

struct ForwardTrace {
  std::vector<int> tokens;  // [T]
  Matrix embedded;          // [T, H]
  std::vector<LayerTrace> layers;
  Matrix final_hidden_state;
  Matrix logits;

  [[nodiscard]] const Matrix& last_hidden_state() const {
    return layers.empty() ? embedded : layers.back().output;
  }
};

std::string head_name(const ModelConfig& config) {
  return config.tie_word_embeddings ? hf::ParameterNames::embedding() : hf::ParameterNames::head();
}

std::vector<std::int64_t> lengths_of(const std::vector<std::vector<int>>& sequences) {
  std::vector<std::int64_t> lengths;
  for (const std::vector<int>& sequence : sequences) {
    lengths.push_back(std::ssize(sequence));
  }
  return lengths;
}

Matrix embed(const Context& context, const std::vector<int>& tokens) {
  const std::vector<double>& table = context.parameters.at(hf::ParameterNames::embedding());
  Matrix embedded(static_cast<std::int64_t>(tokens.size()), context.config.hidden_size);
  for (std::int64_t t = 0; t < embedded.rows; ++t) {
    require(tokens[t] >= 0 && tokens[t] < context.config.vocab_size, "token {} is not in the vocabulary",
            tokens[t]);
    std::copy_n(table.begin() + tokens[t] * embedded.columns, embedded.columns, embedded.row(t).begin());
  }
  return embedded;
}

ForwardTrace forward(const Context& context, const std::vector<std::vector<int>>& sequences) {
  ForwardTrace trace;
  for (const std::vector<int>& sequence : sequences) {
    trace.tokens.insert(trace.tokens.end(), sequence.begin(), sequence.end());
  }
  trace.embedded = embed(context, trace.tokens);
  for (std::int64_t layer = 0; layer < context.config.layers; ++layer) {
    trace.layers.push_back(layer_forward(context, layer, trace.last_hidden_state()));
  }
  trace.final_hidden_state =
      rms_norm(trace.last_hidden_state(), context.parameters.at(hf::ParameterNames::final_norm()),
               context.config.rms_norm_eps);
  trace.logits = linear(trace.final_hidden_state, context.parameters.at(head_name(context.config)));
  return trace;
}

// From the gradients of the logits and of each layer's router logits (empty: none) to those of every
// parameter.
Gradients backward(const Context& context, const ForwardTrace& trace, const Matrix& dlogits,
                   const std::vector<Matrix>& drouter_logits) {
  Gradients gradients = separate_experts(context.config, zero_gradients(context.config));
  const std::string head = head_name(context.config);
  const std::string norm = hf::ParameterNames::final_norm();
  const Matrix dfinal =
      linear_backward(dlogits, trace.final_hidden_state, context.parameters.at(head), gradients.at(head));
  Matrix dhidden = rms_norm_backward(dfinal, trace.last_hidden_state(), context.parameters.at(norm),
                                     context.config.rms_norm_eps, gradients.at(norm));
  for (std::int64_t layer = context.config.layers - 1; layer >= 0; --layer) {
    dhidden = layer_backward(context, layer, trace.layers[layer], dhidden, drouter_logits[layer], gradients);
  }
  std::vector<double>& dtable = gradients.at(hf::ParameterNames::embedding());
  for (std::int64_t t = 0; t < dhidden.rows; ++t) {
    for (std::int64_t i = 0; i < dhidden.columns; ++i) {
      dtable[trace.tokens[t] * dhidden.columns + i] += dhidden(t, i);
    }
  }
  return fuse_experts(context.config, std::move(gradients));
}

std::vector<const Routing*> routings(const Context& context, const ForwardTrace& trace) {
  std::vector<const Routing*> result;
  for (std::int64_t layer = 0; layer < context.config.layers; ++layer) {
    if (context.config.sparse[layer]) {
      result.push_back(&trace.layers[layer].routing);
    }
  }
  return result;
}

// A router loss knows sparse layers only; backward wants one entry per layer.
std::vector<Matrix> per_layer(const Context& context, std::vector<Matrix> sparse_only) {
  std::vector<Matrix> result(context.config.layers);
  auto next = sparse_only.begin();
  for (std::int64_t layer = 0; layer < context.config.layers; ++layer) {
    if (context.config.sparse[layer]) {
      result[layer] = std::move(*next++);
    }
  }
  return result;
}

Gradients router_loss_backward(const Context& context, const ForwardTrace& trace, RouterLoss loss) {
  return backward(context, trace, Matrix(trace.logits.rows, trace.logits.columns),
                  per_layer(context, std::move(loss.gradients)));
}

void fill_losses(const Context& context, const ForwardTrace& trace, const Options& options, Result& result) {
  const RouterShape shape = router_shape(context.config);
  const std::vector<const Routing*> layers = routings(context, trace);
  const LossAndGradient next_token = next_token_loss(trace.logits, trace.tokens, context.bounds);
  RouterLoss balance = load_balance_loss(layers, shape);
  RouterLoss sequence_balance = sequence_balance_loss(layers, context.bounds, shape);
  RouterLoss z = z_loss(layers);
  result.loss = next_token.loss;
  result.aux_loss = balance.loss;
  result.sequence_aux_loss = sequence_balance.loss;
  result.z_loss = z.loss;
  if (options.gradients) {
    result.grads = backward(context, trace, next_token.gradient, std::vector<Matrix>(context.config.layers));
  }
  if (options.aux_gradients) {
    result.grads_aux = router_loss_backward(context, trace, std::move(balance));
  }
  if (options.z_gradients) {
    result.grads_z = router_loss_backward(context, trace, std::move(z));
  }
  if (options.sequence_aux_gradients) {
    result.grads_sequence_aux = router_loss_backward(context, trace, std::move(sequence_balance));
  }
}

std::vector<std::int64_t> count_tokens(const Routing& routing) {
  std::vector<std::int64_t> counts(routing.scores.columns);
  for (const std::vector<std::int64_t>& experts : routing.experts) {
    for (const std::int64_t expert : experts) {
      ++counts[expert];
    }
  }
  return counts;
}

}  // namespace

Result run(const ModelConfig& config, const Parameters& parameters,
           const std::vector<std::vector<int>>& sequences, const Options& options) {
  const Parameters separate = separate_experts(config, parameters);
  const Context context = make_context(config, separate, lengths_of(sequences));
  ForwardTrace trace = forward(context, sequences);
  Result result;
  fill_losses(context, trace, options, result);
  for (LayerTrace& layer : trace.layers) {
    result.tokens_per_expert.push_back(count_tokens(layer.routing));
    result.hidden_states.push_back(std::move(layer.output));
    result.router_logits.push_back(std::move(layer.routing.logits));
    result.experts.push_back(std::move(layer.routing.experts));
  }
  result.final_hidden_state = std::move(trace.final_hidden_state);
  result.logits = std::move(trace.logits);
  return result;
}

}  // namespace expedite::reference
