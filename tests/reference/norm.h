// RMSNorm (Zhang and Sennrich, 2019): y = weight * x / sqrt(mean(x²) + epsilon), row by row.
#pragma once

#include <span>

#include "tests/reference/matrix.h"

namespace expedite::reference {

[[nodiscard]] Matrix rms_norm(const Matrix& x, std::span<const double> weight, double epsilon);

/// Returns dx; adds the gradient of weight.
[[nodiscard]] Matrix rms_norm_backward(const Matrix& dy, const Matrix& x, std::span<const double> weight,
                                       double epsilon, std::span<double> dweight);

}  // namespace expedite::reference
