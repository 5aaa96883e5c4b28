#include <algorithm>
#include <string>

#include "expedite/hf/names.h"
#include "tests/reference/attention_heads.h"
#include "tests/reference/norm.h"
#include "tests/reference/projection.h"

namespace expedite::reference {
namespace {

using hf::ParameterNames;

Matrix columns_of(const Matrix& x, std::int64_t first, std::int64_t count) {
  Matrix part(x.rows, count);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    std::ranges::copy(x.row(row).subspan(first, count), part.row(row).begin());
  }
  return part;
}

// The columns of the one, then those of the other.
Matrix beside(const Matrix& left, const Matrix& right) {
  Matrix both(left.rows, left.columns + right.columns);
  for (std::int64_t row = 0; row < both.rows; ++row) {
    std::ranges::copy(left.row(row), both.row(row).begin());
    std::ranges::copy(right.row(row), both.row(row).begin() + left.columns);
  }
  return both;
}

// Every row `times` times, one behind the other.
Matrix repeat_rows(const Matrix& x, std::int64_t times) {
  Matrix repeated(x.rows * times, x.columns);
  for (std::int64_t row = 0; row < repeated.rows; ++row) {
    std::ranges::copy(x.row(row / times), repeated.row(row).begin());
  }
  return repeated;
}

// The transposed map: sums of `times` neighbouring rows.
Matrix sum_rows(const Matrix& x, std::int64_t times) {
  Matrix sums(x.rows / times, x.columns);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t column = 0; column < x.columns; ++column) {
      sums(row / times, column) += x(row, column);
    }
  }
  return sums;
}

Matrix latent_norm(const Context& context, std::int64_t layer, const char* projection, const Matrix& x) {
  return rms_norm(x, context.parameters.at(hf::ParameterNames::latent_norm(layer, projection)),
                  context.config.latent_norm_eps);
}

Matrix latent_norm_backward(const Context& context, std::int64_t layer, const char* projection,
                            const Matrix& dy, const Matrix& x, Gradients& gradients) {
  const std::string weight = hf::ParameterNames::latent_norm(layer, projection);
  return rms_norm_backward(dy, x, context.parameters.at(weight), context.config.latent_norm_eps,
                           gradients.at(weight));
}

Matrix query_of(const Context& context, std::int64_t layer, const Matrix& x, HeadsTrace& trace) {
  const Parameters& parameters = context.parameters;
  if (context.config.q_lora_rank == 0) {
    return project(parameters, hf::ParameterNames::attention_weight(layer, "q"), x);
  }
  trace.raw_query = project(parameters, hf::ParameterNames::attention_weight(layer, "q_a"), x);
  trace.query_compressed = latent_norm(context, layer, "q_a", trace.raw_query);
  return project(parameters, hf::ParameterNames::attention_weight(layer, "q_b"), trace.query_compressed);
}

Matrix query_backward(const Context& context, std::int64_t layer, const Matrix& x, const HeadsTrace& trace,
                      const Matrix& dquery, Gradients& gradients) {
  const Parameters& parameters = context.parameters;
  if (context.config.q_lora_rank == 0) {
    return project_backward(parameters, hf::ParameterNames::attention_weight(layer, "q"), dquery, x,
                            gradients);
  }
  const Matrix dcompressed = project_backward(parameters, hf::ParameterNames::attention_weight(layer, "q_b"),
                                              dquery, trace.query_compressed, gradients);
  const Matrix draw = latent_norm_backward(context, layer, "q_a", dcompressed, trace.raw_query, gradients);
  return project_backward(parameters, hf::ParameterNames::attention_weight(layer, "q_a"), draw, x, gradients);
}

}  // namespace

Heads latent_heads(const Context& context, std::int64_t layer, const Matrix& x, HeadsTrace& trace) {
  const ModelConfig& config = context.config;
  const Matrix compressed = project(context.parameters, hf::ParameterNames::latent_compress_weight(layer), x);
  trace.raw_key = columns_of(compressed, 0, config.kv_lora_rank);
  trace.key_compressed = latent_norm(context, layer, "kv_a", trace.raw_key);
  // A row for each head of each token: the part of its key that does not turn, and its value.
  const Matrix expanded =
      project(context.parameters, hf::ParameterNames::attention_weight(layer, "kv_b"), trace.key_compressed)
          .reshaped(x.rows * config.heads, config.qk_nope_head_dim + config.value_dim);
  const Matrix turning = columns_of(compressed, config.kv_lora_rank, config.qk_rope_head_dim);
  const Matrix key =
      beside(columns_of(expanded, 0, config.qk_nope_head_dim), repeat_rows(turning, config.heads));
  return {
      rotate(query_of(context, layer, x, trace), context.positions, context.rotary),
      rotate(key.reshaped(x.rows, config.kv_size()), context.positions, context.rotary),
      columns_of(expanded, config.qk_nope_head_dim, config.value_dim).reshaped(x.rows, config.value_size())};
}

Matrix latent_heads_backward(const Context& context, std::int64_t layer, const Matrix& x,
                             const HeadsTrace& trace, const Heads& gradient, Gradients& gradients) {
  const ModelConfig& config = context.config;
  const std::int64_t rows = x.rows * config.heads;
  const Matrix dkey =
      rotate_backward(gradient.key, context.positions, context.rotary).reshaped(rows, config.head_dim);
  const Matrix dexpanded =
      beside(columns_of(dkey, 0, config.qk_nope_head_dim), gradient.value.reshaped(rows, config.value_dim))
          .reshaped(x.rows, config.heads * (config.qk_nope_head_dim + config.value_dim));
  const Matrix dturning =
      sum_rows(columns_of(dkey, config.qk_nope_head_dim, config.qk_rope_head_dim), config.heads);
  const Matrix dcompressed =
      project_backward(context.parameters, hf::ParameterNames::attention_weight(layer, "kv_b"), dexpanded,
                       trace.key_compressed, gradients);
  const Matrix draw = latent_norm_backward(context, layer, "kv_a", dcompressed, trace.raw_key, gradients);
  Matrix dx = project_backward(context.parameters, hf::ParameterNames::latent_compress_weight(layer),
                               beside(draw, dturning), x, gradients);
  const Matrix dquery = rotate_backward(gradient.query, context.positions, context.rotary);
  dx += query_backward(context, layer, x, trace, dquery, gradients);
  return dx;
}

}  // namespace expedite::reference
