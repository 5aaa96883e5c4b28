#include "tests/reference/matrix.h"

#include <numeric>

#include "expedite/base/error.h"

namespace expedite::reference {

Matrix Matrix::reshaped(std::int64_t row_count, std::int64_t column_count) const {
  require(row_count * column_count == rows * columns, "cannot view [{}, {}] as [{}, {}]", rows, columns,
          row_count, column_count);
  Matrix result = *this;
  result.rows = row_count;
  result.columns = column_count;
  return result;
}

Matrix& Matrix::operator+=(const Matrix& other) {
  require(rows == other.rows && columns == other.columns, "cannot add [{}, {}] to [{}, {}]", other.rows,
          other.columns, rows, columns);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] += other.values[i];
  }
  return *this;
}

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

Matrix linear(const Matrix& x, std::span<const double> weight, std::span<const double> bias) {
  const std::int64_t inputs = x.columns;
  const std::int64_t outputs = static_cast<std::int64_t>(weight.size()) / inputs;
  Matrix y(x.rows, outputs);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t o = 0; o < outputs; ++o) {
      y(t, o) = dot(x.row(t), weight.subspan(o * inputs, inputs)) + (bias.empty() ? 0.0 : bias[o]);
    }
  }
  return y;
}

Matrix linear_backward(const Matrix& dy, const Matrix& x, std::span<const double> weight,
                       std::span<double> dweight, std::span<double> dbias) {
  const std::int64_t inputs = x.columns;
  Matrix dx(x.rows, inputs);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t o = 0; o < dy.columns; ++o) {
      for (std::int64_t i = 0; i < inputs; ++i) {
        dx(t, i) += dy(t, o) * weight[o * inputs + i];
        dweight[o * inputs + i] += dy(t, o) * x(t, i);
      }
      if (!dbias.empty()) {
        dbias[o] += dy(t, o);
      }
    }
  }
  return dx;
}

}  // namespace expedite::reference
