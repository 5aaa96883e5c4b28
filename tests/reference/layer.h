// One decoder layer: attention and feed-forward network, each after a norm and around a residual connection.
#pragma once

#include <cstdint>

#include "tests/reference/attention_heads.h"
#include "tests/reference/context.h"
#include "tests/reference/feed_forward.h"
#include "tests/reference/matrix.h"
#include "tests/reference/parameters.h"
#include "tests/reference/router.h"

namespace expedite::reference {

/// What backward needs of a layer's forward pass.
struct LayerTrace {
  Matrix input;            // [T, H]
  Matrix attention_input;  // [T, H], after the norm
  HeadsTrace raw_heads;
  Heads heads;
  Matrix mixed;            // [T, heads * Dv], attention's result before the output projection
  Matrix after_attention;  // [T, H], with the residual
  Matrix ffn_input;        // [T, H], after the norm
  Routing routing;         // of a sparse layer
  Matrix output;           // [T, H]
};

[[nodiscard]] LayerTrace layer_forward(const Context& context, std::int64_t layer, const Matrix& input);

/// Returns d input from d output and, for a sparse layer, a further gradient of its router logits (empty:
/// none). Adds the gradients of the layer's parameters.
[[nodiscard]] Matrix layer_backward(const Context& context, std::int64_t layer, const LayerTrace& trace,
                                    const Matrix& doutput, const Matrix& drouter_logits,
                                    Gradients& gradients);

}  // namespace expedite::reference
