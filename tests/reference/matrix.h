// A matrix of doubles, and the linear map that most of a model is made of.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace expedite::reference {

struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> values;  // row after row

  Matrix() = default;
  Matrix(std::int64_t row_count, std::int64_t column_count)
      : rows(row_count), columns(column_count), values(row_count * column_count) {}

  [[nodiscard]] double& operator()(std::int64_t row, std::int64_t column) {
    return values[row * columns + column];
  }
  [[nodiscard]] double operator()(std::int64_t row, std::int64_t column) const {
    return values[row * columns + column];
  }
  [[nodiscard]] std::span<double> row(std::int64_t index) {
    return std::span(values).subspan(index * columns, columns);
  }
  [[nodiscard]] std::span<const double> row(std::int64_t index) const {
    return std::span(values).subspan(index * columns, columns);
  }
  /// The same values with other extents: [T, heads * D] as [T * heads, D].
  [[nodiscard]] Matrix reshaped(std::int64_t row_count, std::int64_t column_count) const;
  Matrix& operator+=(const Matrix& other);
};

[[nodiscard]] double dot(std::span<const double> a, std::span<const double> b);

/// y[t, o] = sum over i of x[t, i] * weight[o, i], plus bias[o] unless bias is empty. weight: [outputs,
/// inputs].
[[nodiscard]] Matrix linear(const Matrix& x, std::span<const double> weight,
                            std::span<const double> bias = {});

/// Returns dx; adds the gradients of weight and (unless empty) bias.
[[nodiscard]] Matrix linear_backward(const Matrix& dy, const Matrix& x, std::span<const double> weight,
                                     std::span<double> dweight, std::span<double> dbias = {});

}  // namespace expedite::reference
