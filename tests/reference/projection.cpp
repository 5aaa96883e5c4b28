#include "tests/reference/projection.h"

#include <string_view>

namespace expedite::reference {
namespace {

std::string bias_name(const std::string& weight) {
  constexpr std::string_view kWeight = "weight";
  return weight.substr(0, weight.size() - kWeight.size()) + "bias";
}

}  // namespace

std::span<const double> bias_of(const Parameters& parameters, const std::string& weight) {
  const auto found = parameters.find(bias_name(weight));
  return found == parameters.end() ? std::span<const double>() : found->second;
}

std::span<double> bias_gradient(Gradients& gradients, const std::string& weight) {
  const auto found = gradients.find(bias_name(weight));
  return found == gradients.end() ? std::span<double>() : found->second;
}

Matrix project(const Parameters& parameters, const std::string& weight, const Matrix& x) {
  return linear(x, parameters.at(weight), bias_of(parameters, weight));
}

Matrix project_backward(const Parameters& parameters, const std::string& weight, const Matrix& dy,
                        const Matrix& x, Gradients& gradients) {
  return linear_backward(dy, x, parameters.at(weight), gradients.at(weight),
                         bias_gradient(gradients, weight));
}

}  // namespace expedite::reference
