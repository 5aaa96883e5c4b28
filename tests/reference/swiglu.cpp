#include "tests/reference/swiglu.h"

#include <cmath>

namespace expedite::reference {
namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double silu(double x) {
  return x * sigmoid(x);
}
double silu_slope(double x) {
  return sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)));
}

Matrix activate(const Matrix& gate, const Matrix& up) {
  Matrix activated(gate.rows, gate.columns);
  for (std::size_t i = 0; i < activated.values.size(); ++i) {
    activated.values[i] = silu(gate.values[i]) * up.values[i];
  }
  return activated;
}

}  // namespace

Matrix swiglu(const Matrix& x, const SwigluWeights& weights) {
  return linear(activate(linear(x, weights.gate), linear(x, weights.up)), weights.down);
}

Matrix swiglu_backward(const Matrix& dy, const Matrix& x, const SwigluWeights& weights,
                       const SwigluGradients& gradients) {
  const Matrix gate = linear(x, weights.gate);
  const Matrix up = linear(x, weights.up);
  const Matrix dactivated = linear_backward(dy, activate(gate, up), weights.down, gradients.down);
  Matrix dgate(gate.rows, gate.columns);
  Matrix dup(up.rows, up.columns);
  for (std::size_t i = 0; i < dactivated.values.size(); ++i) {
    dgate.values[i] = dactivated.values[i] * up.values[i] * silu_slope(gate.values[i]);
    dup.values[i] = dactivated.values[i] * silu(gate.values[i]);
  }
  Matrix dx = linear_backward(dgate, x, weights.gate, gradients.gate);
  dx += linear_backward(dup, x, weights.up, gradients.up);
  return dx;
}

}  // namespace expedite::reference
