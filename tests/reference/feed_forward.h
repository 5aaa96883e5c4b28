// The feed-forward half of a layer: one SwiGLU, or a router, its experts and the shared expert.
#pragma once

#include <cstdint>

#include "tests/reference/context.h"
#include "tests/reference/matrix.h"
#include "tests/reference/parameters.h"
#include "tests/reference/router.h"

namespace expedite::reference {

[[nodiscard]] RouterShape router_shape(const ModelConfig& config);

/// x: [T, H] to [T, H]. Fills the routing of a sparse layer.
[[nodiscard]] Matrix feed_forward(const Context& context, std::int64_t layer, const Matrix& x,
                                  Routing& routing);

/// Returns dx from dy and, for a sparse layer, a further gradient of its router logits (empty: none). Adds
/// the gradients of the parameters.
[[nodiscard]] Matrix feed_forward_backward(const Context& context, std::int64_t layer, const Matrix& x,
                                           const Routing& routing, const Matrix& dy,
                                           const Matrix& drouter_logits, Gradients& gradients);

}  // namespace expedite::reference
