// Causal grouped-query attention, one query at a time against all the keys it sees.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/reference/matrix.h"

namespace expedite::reference {

struct AttentionShape {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;   // query head h reads key/value head h / (heads / kv_heads)
  std::int64_t head_dim = 1;   // D, of a query and a key
  std::int64_t value_dim = 1;  // Dv
  double scale = 1.0;          // multiplies scores
  std::int64_t window = 0;     // a token sees itself and window - 1 tokens before it; 0: all before it
};

/// q: [T, heads * D]; k: [T, kv_heads * D]; v: [T, kv_heads * Dv]. Sequence s is tokens [bounds[s],
/// bounds[s + 1]) and sees only itself. sinks: [heads], a further score of each query's softmax, which has no
/// value; empty: none. Returns [T, heads * Dv].
[[nodiscard]] Matrix attention(const Matrix& q, const Matrix& k, const Matrix& v,
                               std::span<const std::int64_t> bounds, const AttentionShape& shape,
                               std::span<const double> sinks = {});

struct AttentionGradients {
  Matrix dq;
  Matrix dk;
  Matrix dv;
  std::vector<double> dsinks;  // [heads], or empty
};
[[nodiscard]] AttentionGradients attention_backward(const Matrix& dout, const Matrix& q, const Matrix& k,
                                                    const Matrix& v, std::span<const std::int64_t> bounds,
                                                    const AttentionShape& shape,
                                                    std::span<const double> sinks = {});

}  // namespace expedite::reference
