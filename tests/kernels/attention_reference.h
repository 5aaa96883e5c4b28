// Attention in fp64, written for reading: what the kernels are held against.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "expedite/kernels/attention.h"

namespace expedite::kernels::reference {

struct Problem {
  std::vector<std::int64_t> lengths;
  AttentionOptions options;
  bool sinks = false;

  [[nodiscard]] std::vector<std::int64_t> bounds() const {
    std::vector<std::int64_t> result = {0};
    for (const std::int64_t length : lengths) {
      result.push_back(result.back() + length);
    }
    return result;
  }
  [[nodiscard]] std::int64_t tokens() const { return bounds().back(); }
  [[nodiscard]] std::int64_t query_columns() const { return options.heads * options.head_dim; }
  [[nodiscard]] std::int64_t key_columns() const { return options.kv_heads * options.head_dim; }
  [[nodiscard]] std::int64_t value_dim() const {
    return options.value_dim == 0 ? options.head_dim : options.value_dim;
  }
  [[nodiscard]] std::int64_t value_columns() const { return options.kv_heads * value_dim(); }
  [[nodiscard]] std::int64_t out_columns() const { return options.heads * value_dim(); }
};

using Matrix = std::vector<double>;  // [tokens, columns]

struct Inputs {
  Matrix q, k, v, dout;
  Matrix sinks;  // [heads], or empty
};

struct Results {
  Matrix out, log_sum_exp, dq, dk, dv;
  Matrix dsinks;
};

/// One head of one sequence, queries one after the other, every probability in memory.
class Reference {
 public:
  Reference(const Problem& problem, const Inputs& inputs) : problem_(problem), inputs_(inputs) {
    const std::int64_t tokens = problem.tokens();
    results_.out.assign(tokens * problem.out_columns(), 0.0);
    results_.log_sum_exp.assign(tokens * problem.options.heads, 0.0);
    results_.dq.assign(tokens * problem.query_columns(), 0.0);
    results_.dk.assign(tokens * problem.key_columns(), 0.0);
    results_.dv.assign(tokens * problem.value_columns(), 0.0);
    results_.dsinks.assign(inputs.sinks.size(), 0.0);
  }

  Results compute() {
    std::int64_t begin = 0;
    for (const std::int64_t length : problem_.lengths) {
      for (std::int64_t head = 0; head < problem_.options.heads; ++head) {
        for (std::int64_t query = begin; query < begin + length; ++query) {
          attend(begin, query, head);
        }
      }
      begin += length;
    }
    return results_;
  }

 private:
  void attend(std::int64_t begin, std::int64_t query, std::int64_t head) {
    const AttentionOptions& options = problem_.options;
    const std::int64_t dim = options.head_dim;
    const std::int64_t value_dim = problem_.value_dim();
    const std::int64_t kv_head = head / (options.heads / options.kv_heads);
    const std::int64_t window =
        options.sliding_window == 0 ? query + 1 : std::min(options.sliding_window, query + 1);
    const std::int64_t first = std::max(begin, query - window + 1);
    const std::int64_t q_at = query * problem_.query_columns() + head * dim;
    const std::int64_t out_at = query * problem_.out_columns() + head * value_dim;
    const auto k_at = [&](std::int64_t key) { return key * problem_.key_columns() + kv_head * dim; };
    const auto v_at = [&](std::int64_t key) { return key * problem_.value_columns() + kv_head * value_dim; };
    const auto dot = [](const double* a, const double* b, std::int64_t count) {
      double sum = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        sum += a[i] * b[i];
      }
      return sum;
    };

    std::vector<double> p;
    const double sink =
        inputs_.sinks.empty() ? -std::numeric_limits<double>::infinity() : inputs_.sinks[head];
    double largest = sink;
    for (std::int64_t key = first; key <= query; ++key) {
      p.push_back(static_cast<double>(options.scale) * dot(&inputs_.q[q_at], &inputs_.k[k_at(key)], dim));
      largest = std::max(largest, p.back());
    }
    double sum = std::exp(sink - largest);
    for (double& value : p) {
      value = std::exp(value - largest);
      sum += value;
    }
    results_.log_sum_exp[head * problem_.tokens() + query] = largest + std::log(sum);
    double* out = &results_.out[out_at];
    for (std::int64_t key = first; key <= query; ++key) {
      p[key - first] /= sum;
      for (std::int64_t i = 0; i < value_dim; ++i) {
        out[i] += p[key - first] * inputs_.v[v_at(key) + i];
      }
    }

    const double* dout = &inputs_.dout[out_at];
    const double delta = dot(dout, out, value_dim);
    if (!inputs_.sinks.empty()) {
      results_.dsinks[head] -= std::exp(sink - largest) / sum * delta;
    }
    for (std::int64_t key = first; key <= query; ++key) {
      const double probability = p[key - first];
      const double dscore =
          probability * (dot(dout, &inputs_.v[v_at(key)], value_dim) - delta) * options.scale;
      for (std::int64_t i = 0; i < value_dim; ++i) {
        results_.dv[v_at(key) + i] += probability * dout[i];
      }
      for (std::int64_t i = 0; i < dim; ++i) {
        results_.dk[k_at(key) + i] += dscore * inputs_.q[q_at + i];
        results_.dq[q_at + i] += dscore * inputs_.k[k_at(key) + i];
      }
    }
  }

  const Problem& problem_;
  const Inputs& inputs_;
  Results results_;
};

}  // namespace expedite::kernels::reference
