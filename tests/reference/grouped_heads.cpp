#include <string>

#include "expedite/hf/names.h"
#include "tests/reference/attention_heads.h"
#include "tests/reference/norm.h"
#include "tests/reference/projection.h"

namespace expedite::reference {
namespace {

using architecture::QkNorm;
using hf::ParameterNames;

// How many elements of a token's query or key are normalised together.
std::int64_t norm_size(const ModelConfig& config, const Matrix& x) {
  return config.qk_norm == QkNorm::whole ? x.columns : config.head_dim;
}

Matrix head_norm(const Context& context, const std::string& weight, const Matrix& x) {
  const std::int64_t size = norm_size(context.config, x);
  return rms_norm(x.reshaped(x.rows * x.columns / size, size), context.parameters.at(weight),
                  context.config.rms_norm_eps)
      .reshaped(x.rows, x.columns);
}

Matrix head_norm_backward(const Context& context, const std::string& weight, const Matrix& dy,
                          const Matrix& x, Gradients& gradients) {
  const std::int64_t size = norm_size(context.config, x);
  const std::int64_t rows = x.rows * x.columns / size;
  return rms_norm_backward(dy.reshaped(rows, size), x.reshaped(rows, size), context.parameters.at(weight),
                           context.config.rms_norm_eps, gradients.at(weight))
      .reshaped(x.rows, x.columns);
}

}  // namespace

Heads grouped_heads(const Context& context, std::int64_t layer, const Matrix& x, HeadsTrace& trace) {
  const Parameters& parameters = context.parameters;
  trace.raw_query = project(parameters, hf::ParameterNames::attention_weight(layer, "q"), x);
  trace.raw_key = project(parameters, hf::ParameterNames::attention_weight(layer, "k"), x);
  Heads heads{trace.raw_query, trace.raw_key,
              project(parameters, hf::ParameterNames::attention_weight(layer, "v"), x)};
  if (context.config.qk_norm != QkNorm::none) {
    heads.query = head_norm(context, hf::ParameterNames::query_norm(layer), heads.query);
    heads.key = head_norm(context, hf::ParameterNames::key_norm(layer), heads.key);
  }
  heads.query = rotate(heads.query, context.positions, context.rotary);
  heads.key = rotate(heads.key, context.positions, context.rotary);
  return heads;
}

Matrix grouped_heads_backward(const Context& context, std::int64_t layer, const Matrix& x,
                              const HeadsTrace& trace, const Heads& gradient, Gradients& gradients) {
  Matrix dq = rotate_backward(gradient.query, context.positions, context.rotary);
  Matrix dk = rotate_backward(gradient.key, context.positions, context.rotary);
  if (context.config.qk_norm != QkNorm::none) {
    dq = head_norm_backward(context, hf::ParameterNames::query_norm(layer), dq, trace.raw_query, gradients);
    dk = head_norm_backward(context, hf::ParameterNames::key_norm(layer), dk, trace.raw_key, gradients);
  }
  const Parameters& parameters = context.parameters;
  Matrix dx =
      project_backward(parameters, hf::ParameterNames::attention_weight(layer, "q"), dq, x, gradients);
  dx += project_backward(parameters, hf::ParameterNames::attention_weight(layer, "k"), dk, x, gradients);
  dx += project_backward(parameters, hf::ParameterNames::attention_weight(layer, "v"), gradient.value, x,
                         gradients);
  return dx;
}

}  // namespace expedite::reference
