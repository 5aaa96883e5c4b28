#include "tests/reference/norm.h"

#include <cmath>

namespace expedite::reference {
namespace {

double inverse_rms(std::span<const double> row, double epsilon) {
  return 1.0 / std::sqrt(dot(row, row) / static_cast<double>(row.size()) + epsilon);
}

}  // namespace

Matrix rms_norm(const Matrix& x, std::span<const double> weight, double epsilon) {
  Matrix y(x.rows, x.columns);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const double scale = inverse_rms(x.row(t), epsilon);
    for (std::int64_t i = 0; i < x.columns; ++i) {
      y(t, i) = weight[i] * x(t, i) * scale;
    }
  }
  return y;
}

Matrix rms_norm_backward(const Matrix& dy, const Matrix& x, std::span<const double> weight, double epsilon,
                         std::span<double> dweight) {
  Matrix dx(x.rows, x.columns);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const double scale = inverse_rms(x.row(t), epsilon);
    // d scale / d x_i = -scale³ x_i / columns, and scale multiplies every output of the row.
    double dscale = 0.0;
    for (std::int64_t i = 0; i < x.columns; ++i) {
      dscale += dy(t, i) * weight[i] * x(t, i);
      dweight[i] += dy(t, i) * x(t, i) * scale;
    }
    const double pull = dscale * scale * scale * scale / static_cast<double>(x.columns);
    for (std::int64_t i = 0; i < x.columns; ++i) {
      dx(t, i) = dy(t, i) * weight[i] * scale - pull * x(t, i);
    }
  }
  return dx;
}

}  // namespace expedite::reference
