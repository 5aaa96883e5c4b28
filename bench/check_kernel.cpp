#include "bench/check_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace expedite::bench {
namespace {

using reference::Matrix;

double error_of(double got, double wanted, double scale) {
  const double distance = std::abs(got - wanted);
  if (!std::isfinite(distance)) {
    return std::numeric_limits<double>::infinity();
  }
  return distance == 0.0 ? 0.0 : distance / std::max(std::abs(wanted), scale);
}

/// Of a result: its largest error, and where it lies.
KernelCheck check_result(const KernelResult& result) {
  const Matrix got = result.got();
  const Matrix& wanted = result.wanted;
  KernelCheck check{.result = result.name, .tolerance = result.tolerance};
  if (got.rows != wanted.rows || got.columns != wanted.columns) {
    check.error = std::numeric_limits<double>::infinity();
    check.failure = fmt::format("{} is [{}, {}], wanted [{}, {}]", result.name, got.rows, got.columns,
                                wanted.rows, wanted.columns);
    return check;
  }
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t wrong = 0;
  for (std::int64_t r = 0; r < got.rows; ++r) {
    for (std::int64_t c = 0; c < got.columns; ++c) {
      const double error = error_of(got(r, c), wanted(r, c), result.scale);
      wrong += error > result.tolerance ? 1 : 0;
      if (error > check.error) {
        check.error = error;
        row = r;
        column = c;
      }
    }
  }
  if (wrong > 0) {
    check.failure = fmt::format(
        "{} of {} elements of {} are wrong, most of all row {}, column {}: got {}, wanted {}; error {:.2e}, "
        "tolerance {:.2e}",
        wrong, got.rows * got.columns, result.name, row, column, got(row, column), wanted(row, column),
        check.error, result.tolerance);
  }
  return check;
}

/// How near to its tolerance a result is; one that must be exact and is, is nearest to nothing.
double share(const KernelCheck& check) {
  return check.error == 0.0 ? 0.0 : check.error / check.tolerance;
}

}  // namespace

KernelCheck check_kernel(const KernelCase& subject) {
  const PreparedKernel kernel = subject.prepare();
  const std::vector<KernelResult> results = kernel.results();
  kernel.run();
  KernelCheck worst;
  for (const KernelResult& result : results) {
    const KernelCheck check = check_result(result);
    if (worst.result.empty() || share(check) > share(worst)) {
      worst = check;
    }
  }
  return worst;
}

}  // namespace expedite::bench
