#include "tests/reference/attention.h"

#include <algorithm>

#include "tests/reference/softmax.h"

namespace expedite::reference {
namespace {

// One head of one query: which columns it uses and which keys it sees.
struct Query {
  std::int64_t token;
  std::int64_t head;
  std::int64_t kv_head;
  std::int64_t first_key;  // keys first_key .. token
};

template <typename Visit>
void for_each_query(std::span<const std::int64_t> bounds, const AttentionShape& shape, const Visit& visit) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
    for (std::int64_t token = bounds[s]; token < bounds[s + 1]; ++token) {
      const std::int64_t first =
          shape.window == 0 ? bounds[s] : std::max(bounds[s], token - shape.window + 1);
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        visit(Query{token, head, head / group, first});
      }
    }
  }
}

std::span<const double> head_of(const Matrix& x, std::int64_t token, std::int64_t head, std::int64_t size) {
  return x.row(token).subspan(head * size, size);
}
std::span<double> head_of(Matrix& x, std::int64_t token, std::int64_t head, std::int64_t size) {
  return x.row(token).subspan(head * size, size);
}

void add_scaled(std::span<double> target, double factor, std::span<const double> source) {
  for (std::size_t i = 0; i < target.size(); ++i) {
    target[i] += factor * source[i];
  }
}

// Of the keys that are seen and, behind them, of the sink if there is one.
std::vector<double> probabilities(const Query& query, const Matrix& q, const Matrix& k,
                                  const AttentionShape& shape, std::span<const double> sinks) {
  std::vector<double> scores;
  for (std::int64_t key = query.first_key; key <= query.token; ++key) {
    scores.push_back(shape.scale * dot(head_of(q, query.token, query.head, shape.head_dim),
                                       head_of(k, key, query.kv_head, shape.head_dim)));
  }
  if (!sinks.empty()) {
    scores.push_back(sinks[query.head]);
  }
  return softmax(scores);
}

}  // namespace

Matrix attention(const Matrix& q, const Matrix& k, const Matrix& v, std::span<const std::int64_t> bounds,
                 const AttentionShape& shape, std::span<const double> sinks) {
  Matrix out(q.rows, shape.heads * shape.value_dim);
  for_each_query(bounds, shape, [&](const Query& query) {
    const std::vector<double> weights = probabilities(query, q, k, shape, sinks);
    for (std::int64_t key = query.first_key; key <= query.token; ++key) {
      add_scaled(head_of(out, query.token, query.head, shape.value_dim), weights[key - query.first_key],
                 head_of(v, key, query.kv_head, shape.value_dim));
    }
  });
  return out;
}

AttentionGradients attention_backward(const Matrix& dout, const Matrix& q, const Matrix& k, const Matrix& v,
                                      std::span<const std::int64_t> bounds, const AttentionShape& shape,
                                      std::span<const double> sinks) {
  AttentionGradients gradients{Matrix(q.rows, q.columns), Matrix(k.rows, k.columns),
                               Matrix(v.rows, v.columns), std::vector<double>(sinks.size())};
  for_each_query(bounds, shape, [&](const Query& query) {
    const std::span<const double> dcontext = head_of(dout, query.token, query.head, shape.value_dim);
    const std::vector<double> weights = probabilities(query, q, k, shape, sinks);
    std::vector<double> dweights;
    for (std::int64_t key = query.first_key; key <= query.token; ++key) {
      dweights.push_back(dot(dcontext, head_of(v, key, query.kv_head, shape.value_dim)));
    }
    if (!sinks.empty()) {
      dweights.push_back(0.0);
    }
    const std::vector<double> dscores = softmax_backward(dweights, weights);
    for (std::int64_t key = query.first_key; key <= query.token; ++key) {
      const std::int64_t i = key - query.first_key;
      add_scaled(head_of(gradients.dv, key, query.kv_head, shape.value_dim), weights[i], dcontext);
      add_scaled(head_of(gradients.dq, query.token, query.head, shape.head_dim), dscores[i] * shape.scale,
                 head_of(k, key, query.kv_head, shape.head_dim));
      add_scaled(head_of(gradients.dk, key, query.kv_head, shape.head_dim), dscores[i] * shape.scale,
                 head_of(q, query.token, query.head, shape.head_dim));
    }
    if (!sinks.empty()) {
      gradients.dsinks[query.head] += dscores.back();
    }
  });
  return gradients;
}

}  // namespace expedite::reference
