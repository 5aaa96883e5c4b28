// Test data: matrices of f32, bf16 or i32 whose rows lie apart, so that a kernel that ignores a stride, or
// writes behind a row, is found.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "expedite/tensor/view.h"

namespace expedite::kernels {

template <typename T>
class Matrix {
 public:
  /// Filled with a recognisable value; `gap` elements lie between one row's end and the next row's start.
  Matrix(std::int64_t rows, std::int64_t columns, std::int64_t gap = 0)
      : rows_(rows), columns_(columns), stride_(columns + gap) {
    values_.assign(static_cast<std::size_t>(rows * stride_ + gap), T(kSentinel));
  }

  /// Normally distributed, each value exact in T.
  static Matrix random(std::int64_t rows, std::int64_t columns, std::mt19937& generator,
                       double deviation = 1.0, std::int64_t gap = 0) {
    Matrix result(rows, columns, gap);
    std::normal_distribution<double> normal(0.0, deviation);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        result(r, c) = T(static_cast<float>(normal(generator)));
      }
    }
    return result;
  }

  [[nodiscard]] T& operator()(std::int64_t row, std::int64_t column) {
    return values_[static_cast<std::size_t>(row * stride_ + column)];
  }
  /// The value in double.
  [[nodiscard]] double at(std::int64_t row, std::int64_t column) const {
    return static_cast<double>(static_cast<float>(values_[static_cast<std::size_t>(row * stride_ + column)]));
  }
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t columns() const { return columns_; }

  [[nodiscard]] TensorView view() {
    return TensorView(values_.data(), dtype_of<T>(), {rows_, columns_}, stride_);
  }
  /// [rows, groups, columns / groups].
  [[nodiscard]] TensorView view(std::int64_t groups) {
    return TensorView(values_.data(), dtype_of<T>(), {rows_, groups, columns_ / groups}, stride_);
  }
  /// The only row, as a vector.
  [[nodiscard]] TensorView vector() { return TensorView(values_.data(), dtype_of<T>(), {columns_}); }

  void set_all(T value) {
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t c = 0; c < columns_; ++c) {
        (*this)(r, c) = value;
      }
    }
  }

  /// Whether nothing was written between the rows or behind the last one.
  [[nodiscard]] bool gaps_untouched() const {
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t c = columns_; c < stride_; ++c) {
        if (at(r, c) != static_cast<double>(static_cast<float>(T(kSentinel)))) {
          return false;
        }
      }
    }
    return true;
  }

  [[nodiscard]] bool same_bits(const Matrix& other) const {
    return values_.size() == other.values_.size() &&
           (values_.empty() ||
            std::memcmp(values_.data(), other.values_.data(), values_.size() * sizeof(T)) == 0);
  }

 private:
  static constexpr float kSentinel = 77.0F;

  std::int64_t rows_;
  std::int64_t columns_;
  std::int64_t stride_;
  std::vector<T> values_;
};

/// Half a unit in the last place of T, relative.
template <typename T>
constexpr double rounding() {
  return sizeof(T) == 2 ? 1.0 / 256 : 1.0 / (1 << 24);
}

/// |actual - expected| <= relative * max(|expected|, scale), said with the place.
inline void expect_close(double actual, double expected, double relative, double scale, const char* what,
                         std::int64_t row, std::int64_t column) {
  EXPECT_LE(std::abs(actual - expected), relative * std::max(std::abs(expected), scale))
      << what << " at [" << row << ", " << column << "]: " << actual << " instead of " << expected;
}

}  // namespace expedite::kernels
