// A model's linear layers by the name of their weight. One has a bias where the model has a parameter of its
// name with "bias" instead of "weight".
#pragma once

#include <span>
#include <string>

#include "tests/reference/matrix.h"
#include "tests/reference/parameters.h"

namespace expedite::reference {

/// Empty where there is none.
[[nodiscard]] std::span<const double> bias_of(const Parameters& parameters, const std::string& weight);
[[nodiscard]] std::span<double> bias_gradient(Gradients& gradients, const std::string& weight);

[[nodiscard]] Matrix project(const Parameters& parameters, const std::string& weight, const Matrix& x);

/// Returns dx; adds the gradients of weight and bias.
[[nodiscard]] Matrix project_backward(const Parameters& parameters, const std::string& weight,
                                      const Matrix& dy, const Matrix& x, Gradients& gradients);

}  // namespace expedite::reference
