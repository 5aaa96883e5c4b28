// One router's inputs and outputs, and slow references of what it must choose and weigh.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "expedite/kernels/router.h"
#include "tests/kernels/matrix.h"

namespace expedite::kernels::router_test {

struct Case {
  std::int64_t tokens;
  std::int64_t experts;
  std::int64_t k;
  std::int64_t gap;
};

inline std::vector<double> reference_scores(const std::vector<double>& logits, Scoring scoring) {
  std::vector<double> scores;
  double sum = 1.0;
  if (scoring == Scoring::softmax) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    sum = 0.0;
    for (const double logit : logits) {
      scores.push_back(std::exp(logit - largest));
      sum += scores.back();
    }
  } else {
    for (const double logit : logits) {
      scores.push_back(1.0 / (1.0 + std::exp(-logit)));
    }
  }
  for (double& score : scores) {
    score /= sum;
  }
  return scores;
}

inline std::vector<double> row_of(const Matrix<float>& matrix, std::int64_t row) {
  std::vector<double> values;
  for (std::int64_t c = 0; c < matrix.columns(); ++c) {
    values.push_back(matrix.at(row, c));
  }
  return values;
}

// The weights that one token's choice should get.
inline std::vector<double> reference_weights(const std::vector<double>& scores,
                                             const std::vector<std::int64_t>& chosen,
                                             const RouterOptions& options) {
  double sum = 0.0;
  for (const std::int64_t e : chosen) {
    sum += scores[static_cast<std::size_t>(e)];
  }
  std::vector<double> weights;
  weights.reserve(chosen.size());
  for (const std::int64_t e : chosen) {
    weights.push_back(scores[static_cast<std::size_t>(e)] / (options.renormalize ? sum : 1.0) *
                      options.scaling_factor);
  }
  return weights;
}

inline std::vector<std::int64_t> experts_of(const Matrix<std::int32_t>& experts, std::int64_t token) {
  std::vector<std::int64_t> chosen;
  for (std::int64_t j = 0; j < experts.columns(); ++j) {
    chosen.push_back(static_cast<std::int64_t>(experts.at(token, j)));
  }
  return chosen;
}

// A router's inputs and outputs.
struct Problem {
  Problem(const Case& shape, std::mt19937& generator)
      : logits(Matrix<float>::random(shape.tokens, shape.experts, generator, 2.0, shape.gap)),
        scores(shape.tokens, shape.experts, shape.gap),
        experts(shape.tokens, shape.k, shape.gap),
        weights(shape.tokens, shape.k, shape.gap) {
    options.top_k = shape.k;
  }
  void run(std::span<const float> bias = {}) {
    route(logits.view(), bias, options, scores.view(), experts.view(), weights.view());
  }

  RouterOptions options;
  Matrix<float> logits;
  Matrix<float> scores;
  Matrix<std::int32_t> experts;
  Matrix<float> weights;
};

inline std::vector<std::int64_t> best_first(const std::vector<float>& keys) {
  std::vector<std::int64_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return keys[static_cast<std::size_t>(a)] > keys[static_cast<std::size_t>(b)];
  });
  return order;
}

// The keys of experts outside the best groups become 0, or less than any other.
inline void limit_to_groups(const RouterOptions& options, std::vector<float>& keys) {
  const std::size_t size = keys.size() / static_cast<std::size_t>(options.groups);
  const bool best_two = options.group_score == GroupScore::best_two;
  std::vector<float> sums;
  for (std::size_t begin = 0; begin < keys.size(); begin += size) {
    std::vector<float> group(keys.begin() + static_cast<std::ptrdiff_t>(begin),
                             keys.begin() + static_cast<std::ptrdiff_t>(begin + size));
    std::sort(group.rbegin(), group.rend());
    sums.push_back(best_two ? group[0] + group[1] : group[0]);
  }
  const std::vector<std::int64_t> order = best_first(sums);
  for (std::size_t i = static_cast<std::size_t>(options.top_groups); i < order.size(); ++i) {
    const auto begin = keys.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(order[i]) * size);
    std::fill(begin, begin + static_cast<std::ptrdiff_t>(size), best_two ? 0.0F : -1e30F);
  }
}

// The choice is checked against a stable sort of the kernel's own scores, so that rounding cannot excuse it.
inline void expect_choice(const Problem& problem, std::span<const float> bias, std::int64_t token) {
  std::vector<float> keys;
  for (std::int64_t e = 0; e < problem.scores.columns(); ++e) {
    keys.push_back(static_cast<float>(problem.scores.at(token, e)) +
                   (bias.empty() ? 0.0F : bias[static_cast<std::size_t>(e)]));
  }
  if (problem.options.groups > 1) {
    limit_to_groups(problem.options, keys);
  }
  std::vector<std::int64_t> order = best_first(keys);
  order.resize(static_cast<std::size_t>(problem.options.top_k));
  EXPECT_EQ(experts_of(problem.experts, token), order) << "token " << token;
}

inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace expedite::kernels::router_test
