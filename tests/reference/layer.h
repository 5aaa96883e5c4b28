// One decoder layer: attention and feed-forward network, each after a norm and around a residual connection.
#pragma once

#include <cstdint>
#include <vector>

#include "expedite/model/config.h"
#include "expedite/model/names.h"
#include "tests/reference/matrix.h"
#include "tests/reference/parameters.h"
#include "tests/reference/rotary.h"
#include "tests/reference/router.h"

namespace expedite::reference {

/// What every layer of one run sees.
struct Context {
  const model::ModelConfig& config;
  const Parameters& parameters;
  model::ParameterNames names;
  std::vector<std::int64_t> bounds;     // sequence s is tokens [bounds[s], bounds[s + 1])
  std::vector<std::int64_t> positions;  // [T], from 0 in each sequence
  Rotary rotary;
};

/// What backward needs of a layer's forward pass.
struct LayerTrace {
  Matrix input;            // [T, H]
  Matrix attention_input;  // [T, H], after the norm
  Matrix raw_query;        // [T, heads * D], as projected
  Matrix raw_key;          // [T, kv_heads * D]
  Matrix query;            // after norm and rotation
  Matrix key;
  Matrix value;
  Matrix mixed;            // [T, heads * D], attention's result before the output projection
  Matrix after_attention;  // [T, H], with the residual
  Matrix ffn_input;        // [T, H], after the norm
  Routing routing;         // of a sparse layer
  Matrix output;           // [T, H]
};

[[nodiscard]] RouterShape router_shape(const model::ModelConfig& config);

[[nodiscard]] LayerTrace layer_forward(const Context& context, std::int64_t layer, const Matrix& input);

/// Returns d input from d output and, for a sparse layer, a further gradient of its router logits (empty:
/// none). Adds the gradients of the layer's parameters.
[[nodiscard]] Matrix layer_backward(const Context& context, std::int64_t layer, const LayerTrace& trace,
                                    const Matrix& doutput, const Matrix& drouter_logits,
                                    Gradients& gradients);

}  // namespace expedite::reference
