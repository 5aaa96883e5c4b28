// What attention makes of a token's hidden state: its query, key and value heads.
#pragma once

#include <cstdint>

#include "tests/reference/context.h"
#include "tests/reference/matrix.h"
#include "tests/reference/parameters.h"

namespace expedite::reference {

/// As attention sees them, after norms and rotation; or their gradients.
struct Heads {
  Matrix query;  // [T, heads * D]
  Matrix key;    // [T, kv_heads * D]
  Matrix value;  // [T, kv_heads * Dv]
};

/// What backward needs besides the input. Before norms and rotation.
struct HeadsTrace {
  Matrix raw_query;         // [T, heads * D]; latent attention: [T, Rq] of a query that is compressed
  Matrix raw_key;           // [T, kv_heads * D]; latent attention: [T, Rkv], what a token is compressed to
  Matrix query_compressed;  // latent attention: the two after their norm
  Matrix key_compressed;
};

/// x: [T, H]. Projections of its own for query, key and value.
[[nodiscard]] Heads grouped_heads(const Context& context, std::int64_t layer, const Matrix& x,
                                  HeadsTrace& trace);
/// Returns dx; adds the gradients of the parameters.
[[nodiscard]] Matrix grouped_heads_backward(const Context& context, std::int64_t layer, const Matrix& x,
                                            const HeadsTrace& trace, const Heads& gradient,
                                            Gradients& gradients);

/// Multi-head latent attention (DeepSeek-AI, 2024, arXiv:2405.04434): keys and values of all heads come from
/// one small vector per token, and so may queries. The rotated part of a key, its last elements, is a
/// projection of its own, the same for all heads.
[[nodiscard]] Heads latent_heads(const Context& context, std::int64_t layer, const Matrix& x,
                                 HeadsTrace& trace);
[[nodiscard]] Matrix latent_heads_backward(const Context& context, std::int64_t layer, const Matrix& x,
                                           const HeadsTrace& trace, const Heads& gradient,
                                           Gradients& gradients);

}  // namespace expedite::reference
