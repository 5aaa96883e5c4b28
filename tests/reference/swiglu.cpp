#include "tests/reference/swiglu.h"

#include <algorithm>
#include <cmath>

namespace expedite::reference {
namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double swish(double x, double alpha) {
  return x * sigmoid(alpha * x);
}
double swish_slope(double x, double alpha) {
  return sigmoid(alpha * x) * (1.0 + alpha * x * (1.0 - sigmoid(alpha * x)));
}

// What one pair of gate and up becomes, and its slopes.
struct Activated {
  double value;
  double by_gate;
  double by_up;
};
Activated activate(double gate, double up, const std::optional<Clamp>& clamp) {
  if (!clamp) {
    return {swish(gate, 1.0) * up, swish_slope(gate, 1.0) * up, swish(gate, 1.0)};
  }
  const double low = std::min(gate, clamp->limit);
  const double factor = std::clamp(up, -clamp->limit, clamp->limit) + 1.0;
  return {swish(low, clamp->alpha) * factor,
          gate <= clamp->limit ? swish_slope(low, clamp->alpha) * factor : 0.0,
          std::abs(up) <= clamp->limit ? swish(low, clamp->alpha) : 0.0};
}

Matrix activate(const Matrix& gate, const Matrix& up, const std::optional<Clamp>& clamp) {
  Matrix activated(gate.rows, gate.columns);
  for (std::size_t i = 0; i < activated.values.size(); ++i) {
    activated.values[i] = activate(gate.values[i], up.values[i], clamp).value;
  }
  return activated;
}

}  // namespace

Matrix swiglu(const Matrix& x, const SwigluWeights& weights) {
  const Matrix gate = linear(x, weights.gate, weights.gate_bias);
  const Matrix up = linear(x, weights.up, weights.up_bias);
  return linear(activate(gate, up, weights.clamp), weights.down, weights.down_bias);
}

Matrix swiglu_backward(const Matrix& dy, const Matrix& x, const SwigluWeights& weights,
                       const SwigluGradients& gradients) {
  const Matrix gate = linear(x, weights.gate, weights.gate_bias);
  const Matrix up = linear(x, weights.up, weights.up_bias);
  const Matrix dactivated = linear_backward(dy, activate(gate, up, weights.clamp), weights.down,
                                            gradients.down, gradients.down_bias);
  Matrix dgate(gate.rows, gate.columns);
  Matrix dup(up.rows, up.columns);
  for (std::size_t i = 0; i < dactivated.values.size(); ++i) {
    const Activated slopes = activate(gate.values[i], up.values[i], weights.clamp);
    dgate.values[i] = dactivated.values[i] * slopes.by_gate;
    dup.values[i] = dactivated.values[i] * slopes.by_up;
  }
  Matrix dx = linear_backward(dgate, x, weights.gate, gradients.gate, gradients.gate_bias);
  dx += linear_backward(dup, x, weights.up, gradients.up, gradients.up_bias);
  return dx;
}

}  // namespace expedite::reference
