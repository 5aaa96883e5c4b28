#include "tests/reference/moe.h"

#include <algorithm>

namespace expedite::reference {
namespace {

struct Assignment {
  std::int64_t token;
  std::int64_t slot;
};

std::vector<Assignment> assignments_of(std::int64_t expert, const Routing& routing) {
  std::vector<Assignment> result;
  for (std::size_t token = 0; token < routing.experts.size(); ++token) {
    for (std::size_t slot = 0; slot < routing.experts[token].size(); ++slot) {
      if (routing.experts[token][slot] == expert) {
        result.push_back({static_cast<std::int64_t>(token), static_cast<std::int64_t>(slot)});
      }
    }
  }
  return result;
}

Matrix gather(const Matrix& x, const std::vector<Assignment>& assignments) {
  Matrix rows(static_cast<std::int64_t>(assignments.size()), x.columns);
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    std::ranges::copy(x.row(assignments[i].token), rows.row(i).begin());
  }
  return rows;
}

void add_scaled(std::span<double> target, double factor, std::span<const double> source) {
  for (std::size_t i = 0; i < target.size(); ++i) {
    target[i] += factor * source[i];
  }
}

}  // namespace

Matrix mixture(const Matrix& x, const Routing& routing, const std::vector<SwigluWeights>& experts) {
  Matrix y(x.rows, x.columns);
  for (std::size_t e = 0; e < experts.size(); ++e) {
    const std::vector<Assignment> assignments = assignments_of(static_cast<std::int64_t>(e), routing);
    const Matrix outputs = swiglu(gather(x, assignments), experts[e]);
    for (std::int64_t i = 0; i < outputs.rows; ++i) {
      const auto [token, slot] = assignments[i];
      add_scaled(y.row(token), routing.weights(token, slot), outputs.row(i));
    }
  }
  return y;
}

MixtureGradients mixture_backward(const Matrix& dy, const Matrix& x, const Routing& routing,
                                  const std::vector<SwigluWeights>& experts,
                                  const std::vector<SwigluGradients>& gradients) {
  MixtureGradients result{Matrix(x.rows, x.columns), Matrix(routing.weights.rows, routing.weights.columns)};
  for (std::size_t e = 0; e < experts.size(); ++e) {
    const std::vector<Assignment> assignments = assignments_of(static_cast<std::int64_t>(e), routing);
    const Matrix inputs = gather(x, assignments);
    const Matrix outputs = swiglu(inputs, experts[e]);
    Matrix doutputs(outputs.rows, outputs.columns);
    for (std::int64_t i = 0; i < outputs.rows; ++i) {
      const auto [token, slot] = assignments[i];
      result.dweights(token, slot) = dot(dy.row(token), outputs.row(i));
      add_scaled(doutputs.row(i), routing.weights(token, slot), dy.row(token));
    }
    const Matrix dinputs = swiglu_backward(doutputs, inputs, experts[e], gradients[e]);
    for (std::int64_t i = 0; i < dinputs.rows; ++i) {
      add_scaled(result.dx.row(assignments[i].token), 1.0, dinputs.row(i));
    }
  }
  return result;
}

}  // namespace expedite::reference
