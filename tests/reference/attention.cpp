#include "tests/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/reference/softmax.h"

namespace expedite::reference {
namespace {

// One head of one query: which columns it uses and which keys it sees.
struct Query {
  std::int64_t token;
  std::int64_t first_key;  // keys first_key .. token
  std::int64_t q_column;
  std::int64_t kv_column;
};

template <typename Visit>
void for_each_query(std::span<const std::int64_t> bounds, const AttentionShape& shape, const Visit& visit) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
    for (std::int64_t token = bounds[s]; token < bounds[s + 1]; ++token) {
      const std::int64_t first =
          shape.window == 0 ? bounds[s] : std::max(bounds[s], token - shape.window + 1);
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        visit(Query{token, first, head * shape.head_dim, head / group * shape.head_dim});
      }
    }
  }
}

std::span<const double> head_of(const Matrix& x, std::int64_t token, std::int64_t column,
                                const AttentionShape& shape) {
  return x.row(token).subspan(column, shape.head_dim);
}

double scale_of(const AttentionShape& shape) {
  return 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
}

std::vector<double> probabilities(const Query& query, const Matrix& q, const Matrix& k,
                                  const AttentionShape& shape) {
  std::vector<double> scores;
  for (std::int64_t key = query.first_key; key <= query.token; ++key) {
    scores.push_back(scale_of(shape) * dot(head_of(q, query.token, query.q_column, shape),
                                           head_of(k, key, query.kv_column, shape)));
  }
  return softmax(scores);
}

}  // namespace

Matrix attention(const Matrix& q, const Matrix& k, const Matrix& v, std::span<const std::int64_t> bounds,
                 const AttentionShape& shape) {
  Matrix out(q.rows, q.columns);
  for_each_query(bounds, shape, [&](const Query& query) {
    const std::vector<double> weights = probabilities(query, q, k, shape);
    for (std::int64_t key = query.first_key; key <= query.token; ++key) {
      for (std::int64_t i = 0; i < shape.head_dim; ++i) {
        out(query.token, query.q_column + i) += weights[key - query.first_key] * v(key, query.kv_column + i);
      }
    }
  });
  return out;
}

AttentionGradients attention_backward(const Matrix& dout, const Matrix& q, const Matrix& k, const Matrix& v,
                                      std::span<const std::int64_t> bounds, const AttentionShape& shape) {
  AttentionGradients gradients{Matrix(q.rows, q.columns), Matrix(k.rows, k.columns),
                               Matrix(v.rows, v.columns)};
  for_each_query(bounds, shape, [&](const Query& query) {
    const std::vector<double> weights = probabilities(query, q, k, shape);
    std::vector<double> dweights;
    for (std::int64_t key = query.first_key; key <= query.token; ++key) {
      dweights.push_back(
          dot(head_of(dout, query.token, query.q_column, shape), head_of(v, key, query.kv_column, shape)));
    }
    const std::vector<double> dscores = softmax_backward(dweights, weights);
    for (std::int64_t key = query.first_key; key <= query.token; ++key) {
      const double weight = weights[key - query.first_key];
      const double dscore = dscores[key - query.first_key] * scale_of(shape);
      for (std::int64_t i = 0; i < shape.head_dim; ++i) {
        const std::int64_t q_column = query.q_column + i;
        const std::int64_t kv_column = query.kv_column + i;
        gradients.dv(key, kv_column) += weight * dout(query.token, q_column);
        gradients.dq(query.token, q_column) += dscore * k(key, kv_column);
        gradients.dk(key, kv_column) += dscore * q(query.token, q_column);
      }
    }
  });
  return gradients;
}

}  // namespace expedite::reference
