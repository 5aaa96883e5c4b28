#include "tests/reference/shared_expert.h"

#include <cmath>

namespace expedite::reference {
namespace {

// [T, 1].
Matrix gate_values(const Matrix& x, std::span<const double> gate) {
  Matrix values = linear(x, gate);
  for (double& value : values.values) {
    value = 1.0 / (1.0 + std::exp(-value));
  }
  return values;
}

Matrix scale_rows(Matrix x, const Matrix& factors) {
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (double& value : x.row(t)) {
      value *= factors(t, 0);
    }
  }
  return x;
}

}  // namespace

Matrix shared_expert(const Matrix& x, const SharedExpertWeights& weights) {
  const Matrix y = swiglu(x, weights.expert);
  return weights.gate.empty() ? y : scale_rows(y, gate_values(x, weights.gate));
}

Matrix shared_expert_backward(const Matrix& dy, const Matrix& x, const SharedExpertWeights& weights,
                              const SharedExpertGradients& gradients) {
  if (weights.gate.empty()) {
    return swiglu_backward(dy, x, weights.expert, gradients.expert);
  }
  const Matrix gate = gate_values(x, weights.gate);
  const Matrix y = swiglu(x, weights.expert);
  Matrix dlogits(x.rows, 1);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    dlogits(t, 0) = dot(dy.row(t), y.row(t)) * gate(t, 0) * (1.0 - gate(t, 0));
  }
  Matrix dx = swiglu_backward(scale_rows(dy, gate), x, weights.expert, gradients.expert);
  dx += linear_backward(dlogits, x, weights.gate, gradients.gate);
  return dx;
}

}  // namespace expedite::reference
