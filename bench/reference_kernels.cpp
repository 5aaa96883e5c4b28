#include "bench/reference_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "expedite/kernels/parallel.h"
#include "tests/reference/softmax.h"

namespace expedite::bench {
namespace {

using reference::Matrix;

/// In several sums, so that a compiler may use vectors.
double dot(const double* a, const double* b, std::int64_t count) {
  constexpr std::int64_t kSums = 8;
  double sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::int64_t j = 0; j < kSums; ++j) {
      sums[j] += a[i + j] * b[i + j];
    }
  }
  double total = 0.0;
  for (const double sum : sums) {
    total += sum;
  }
  for (; i < count; ++i) {
    total += a[i] * b[i];
  }
  return total;
}

struct Activation {
  double value;
  double by_gate;  // derivatives
  double by_up;
};

Activation activate(double gate, double up, const Glu& options) {
  const double limit = options.limit > 0.0 ? options.limit : std::numeric_limits<double>::infinity();
  const bool gate_free = gate <= limit;
  const bool up_free = std::abs(up) <= limit;
  gate = std::min(gate, limit);
  up = std::clamp(up, -limit, limit) + options.up_offset;
  const double sigmoid = 1.0 / (1.0 + std::exp(-options.alpha * gate));
  const double slope = sigmoid * (1.0 + options.alpha * gate * (1.0 - sigmoid));
  return {up * gate * sigmoid, gate_free ? up * slope : 0.0, up_free ? gate * sigmoid : 0.0};
}

}  // namespace

Matrix transposed(const Matrix& x) {
  Matrix result(x.columns, x.rows);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t column = 0; column < x.columns; ++column) {
      result(column, row) = x(row, column);
    }
  }
  return result;
}

Matrix product(const Matrix& a, const Matrix& b) {
  constexpr std::int64_t kRows = 16;  // of `a` against one of `b`, while that lies in a cache
  Matrix result(a.rows, b.rows);
  kernels::parallel_for(a.rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; block += kRows) {
      for (std::int64_t column = 0; column < b.rows; ++column) {
        for (std::int64_t row = block; row < std::min(block + kRows, end); ++row) {
          result(row, column) = dot(a.row(row).data(), b.row(column).data(), a.columns);
        }
      }
    }
  });
  return result;
}

Matrix glu(const Matrix& gate_up, std::span<const double> weights, const Glu& options) {
  const std::int64_t width = gate_up.columns / 2;
  Matrix y(gate_up.rows, width);
  for (std::int64_t row = 0; row < y.rows; ++row) {
    for (std::int64_t i = 0; i < width; ++i) {
      const double value = activate(gate_up(row, i), gate_up(row, width + i), options).value;
      y(row, i) = weights.empty() ? value : weights[row] * value;
    }
  }
  return y;
}

GluGradients glu_backward(const Matrix& dy, const Matrix& gate_up, std::span<const double> weights,
                          const Glu& options) {
  const std::int64_t width = gate_up.columns / 2;
  GluGradients result{Matrix(gate_up.rows, gate_up.columns), Matrix(gate_up.rows, 1)};
  for (std::int64_t row = 0; row < dy.rows; ++row) {
    const double weight = weights.empty() ? 1.0 : weights[row];
    for (std::int64_t i = 0; i < width; ++i) {
      const Activation activation = activate(gate_up(row, i), gate_up(row, width + i), options);
      result.dgate_up(row, i) = weight * dy(row, i) * activation.by_gate;
      result.dgate_up(row, width + i) = weight * dy(row, i) * activation.by_up;
      result.dweights(row, 0) += dy(row, i) * activation.value;
    }
  }
  return result;
}

CrossEntropy cross_entropy(const Matrix& hidden, const Matrix& weight, std::span<const std::int32_t> targets,
                           double scale) {
  CrossEntropy result;
  Matrix dlogits = product(hidden, weight);
  for (std::int64_t t = 0; t < hidden.rows; ++t) {
    const std::span<double> row = dlogits.row(t);
    if (targets[t] < 0) {  // no target: no loss, no gradient
      std::ranges::fill(row, 0.0);
      continue;
    }
    result.loss += reference::log_sum_exp(row) - row[targets[t]];
    const std::vector<double> probabilities = reference::softmax(row);
    for (std::int64_t v = 0; v < weight.rows; ++v) {
      row[v] = scale * (probabilities[v] - (v == targets[t] ? 1.0 : 0.0));
    }
  }
  result.dhidden = product(dlogits, transposed(weight));
  result.dweight = product(transposed(dlogits), transposed(hidden));
  return result;
}

}  // namespace expedite::bench
