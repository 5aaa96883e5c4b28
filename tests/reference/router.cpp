#include "tests/reference/router.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "tests/reference/softmax.h"

namespace expedite::reference {
namespace {

std::vector<double> scores_of(std::span<const double> logits, const RouterShape& shape) {
  if (!shape.sigmoid) {
    return softmax(logits);
  }
  std::vector<double> scores;
  for (const double logit : logits) {
    scores.push_back(1.0 / (1.0 + std::exp(-logit)));
  }
  return scores;
}

// The numbers of `values` from the best on; of equals the lower number comes first.
std::vector<std::int64_t> best_first(std::span<const double> values) {
  std::vector<std::int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](std::int64_t i) { return values[i]; });
  return order;
}

double group_score(std::span<const double> values, bool by_best) {
  const std::vector<std::int64_t> order = best_first(values);
  return by_best ? values[order[0]] : values[order[0]] + values[order[1]];
}

double chosen_sum(const Routing& routing, std::int64_t token) {
  double sum = 0.0;
  for (const std::int64_t expert : routing.experts[token]) {
    sum += routing.scores(token, expert);
  }
  return sum;
}

}  // namespace

Preferences preferences(std::span<const double> scores, std::span<const double> selection_bias,
                        const RouterShape& shape) {
  Preferences result{{scores.begin(), scores.end()}, std::numeric_limits<double>::infinity()};
  for (std::size_t e = 0; e < selection_bias.size(); ++e) {
    result.values[e] += selection_bias[e];
  }
  if (shape.top_groups == shape.groups) {
    return result;
  }
  const std::int64_t size = std::ssize(scores) / shape.groups;
  std::vector<double> group_scores;
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    group_scores.push_back(
        group_score(std::span(result.values).subspan(group * size, size), shape.group_by_best));
  }
  const std::vector<std::int64_t> order = best_first(group_scores);
  result.group_margin = group_scores[order[shape.top_groups - 1]] - group_scores[order[shape.top_groups]];
  const double never = shape.group_by_best ? -std::numeric_limits<double>::infinity() : 0.0;
  for (std::int64_t i = shape.top_groups; i < shape.groups; ++i) {
    std::fill_n(result.values.begin() + order[i] * size, size, never);
  }
  return result;
}

Routing route(Matrix logits, std::span<const double> selection_bias, const RouterShape& shape) {
  Routing routing;
  routing.logits = std::move(logits);
  const Matrix& input = routing.logits;
  routing.scores = Matrix(input.rows, input.columns);
  routing.weights = Matrix(input.rows, shape.top_k);
  for (std::int64_t t = 0; t < input.rows; ++t) {
    std::ranges::copy(scores_of(input.row(t), shape), routing.scores.row(t).begin());
    routing.experts.push_back(best_first(preferences(routing.scores.row(t), selection_bias, shape).values));
    routing.experts.back().resize(shape.top_k);
    const double divisor = shape.renormalize ? chosen_sum(routing, t) : 1.0;
    for (std::int64_t slot = 0; slot < shape.top_k; ++slot) {
      routing.weights(t, slot) = shape.scaling_factor * routing.scores(t, routing.experts[t][slot]) / divisor;
    }
  }
  return routing;
}

Matrix weights_backward(const Matrix& dweights, const Routing& routing, const RouterShape& shape) {
  Matrix dscores(routing.scores.rows, routing.scores.columns);
  for (std::int64_t t = 0; t < dscores.rows; ++t) {
    // weight_i = c * score_i / sum: moving any score also moves the sum under every weight of the token.
    const double divisor = shape.renormalize ? chosen_sum(routing, t) : 1.0;
    const double shared = shape.renormalize ? dot(dweights.row(t), routing.weights.row(t)) : 0.0;
    for (std::int64_t slot = 0; slot < shape.top_k; ++slot) {
      dscores(t, routing.experts[t][slot]) = (shape.scaling_factor * dweights(t, slot) - shared) / divisor;
    }
  }
  return dscores;
}

Matrix scores_backward(const Matrix& dscores, const Routing& routing, const RouterShape& shape) {
  Matrix dlogits(dscores.rows, dscores.columns);
  for (std::int64_t t = 0; t < dscores.rows; ++t) {
    if (!shape.sigmoid) {
      std::ranges::copy(softmax_backward(dscores.row(t), routing.scores.row(t)), dlogits.row(t).begin());
      continue;
    }
    for (std::int64_t e = 0; e < dscores.columns; ++e) {
      const double score = routing.scores(t, e);
      dlogits(t, e) = dscores(t, e) * score * (1.0 - score);
    }
  }
  return dlogits;
}

}  // namespace expedite::reference
