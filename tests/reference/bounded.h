// Numbers with a bound on what rounding has done to them: running error analysis, to first order (Wilkinson,
// 1963; Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.3).
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace expedite::reference {

/// The largest relative error of one rounding to nearest, half a unit in the last place: of f32, in which
/// everything is computed, and of bf16.
inline constexpr double kF32Unit = 0x1p-24;
inline constexpr double kBf16Unit = 0x1p-8;

/// `value` is exact, `error` how far a computation in f32 may be from it.
struct Bounded {
  double value = 0.0;
  double error = 0.0;
};
using BoundedRow = std::vector<Bounded>;

/// After one more rounding.
[[nodiscard]] inline Bounded rounded(const Bounded& x, double unit) {
  return {x.value, x.error + unit * (std::abs(x.value) + x.error)};
}
[[nodiscard]] inline Bounded operator+(const Bounded& a, const Bounded& b) {
  return rounded({a.value + b.value, a.error + b.error}, kF32Unit);
}
[[nodiscard]] inline Bounded operator-(const Bounded& a, const Bounded& b) {
  return rounded({a.value - b.value, a.error + b.error}, kF32Unit);
}
[[nodiscard]] inline Bounded operator*(const Bounded& a, const Bounded& b) {
  const double error = std::abs(a.value) * b.error + std::abs(b.value) * a.error + a.error * b.error;
  return rounded({a.value * b.value, error}, kF32Unit);
}

/// A sum in f32, in any order: each of its additions may be wrong by a unit of all addends together.
class BoundedSum {
 public:
  void add(const Bounded& x) {
    value_ += x.value;
    error_ += x.error;
    magnitude_ += std::abs(x.value) + x.error;
    ++addends_;
  }
  /// All addends of another sum, one by one.
  void add(const BoundedSum& other) {
    value_ += other.value_;
    error_ += other.error_;
    magnitude_ += other.magnitude_;
    addends_ += other.addends_;
  }
  [[nodiscard]] std::int64_t addends() const { return addends_; }
  [[nodiscard]] Bounded result() const {
    return {value_, error_ + static_cast<double>(addends_) * kF32Unit * magnitude_};
  }
  /// As it is stored; a sum of one number is that number.
  [[nodiscard]] Bounded stored(double unit) const {
    return addends_ > 1 ? rounded(result(), unit) : Bounded{value_, error_};
  }

 private:
  double value_ = 0.0;
  double error_ = 0.0;
  double magnitude_ = 0.0;
  std::int64_t addends_ = 0;
};

/// With exact weights.
[[nodiscard]] inline Bounded dot(const BoundedRow& a, std::span<const double> b) {
  BoundedSum sum;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum.add({a[i].value * b[i], a[i].error * std::abs(b[i])});
  }
  return sum.result();
}
[[nodiscard]] inline Bounded dot(const BoundedRow& a, const BoundedRow& b) {
  BoundedSum sum;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum.add(a[i] * b[i]);
  }
  return sum.result();
}

/// Column `index` of a matrix of so many rows.
[[nodiscard]] inline BoundedRow column(std::span<const double> matrix, std::size_t rows, std::size_t index) {
  BoundedRow result;
  for (std::size_t i = 0; i < rows; ++i) {
    result.push_back({matrix[i * (matrix.size() / rows) + index], 0.0});
  }
  return result;
}

}  // namespace expedite::reference
