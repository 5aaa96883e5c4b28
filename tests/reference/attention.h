// Causal grouped-query attention, one query at a time against all the keys it sees.
#pragma once

#include <cstdint>
#include <span>

#include "tests/reference/matrix.h"

namespace expedite::reference {

struct AttentionShape {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;  // query head h reads key/value head h / (heads / kv_heads)
  std::int64_t head_dim = 1;  // D; scores are multiplied by 1 / sqrt(D)
  std::int64_t window = 0;    // a token sees itself and window - 1 tokens before it; 0: all before it
};

/// q: [T, heads * D]; k, v: [T, kv_heads * D]. Sequence s is tokens [bounds[s], bounds[s + 1]) and sees only
/// itself. Returns [T, heads * D].
[[nodiscard]] Matrix attention(const Matrix& q, const Matrix& k, const Matrix& v,
                               std::span<const std::int64_t> bounds, const AttentionShape& shape);

struct AttentionGradients {
  Matrix dq;
  Matrix dk;
  Matrix dv;
};
[[nodiscard]] AttentionGradients attention_backward(const Matrix& dout, const Matrix& q, const Matrix& k,
                                                    const Matrix& v, std::span<const std::int64_t> bounds,
                                                    const AttentionShape& shape);

}  // namespace expedite::reference
