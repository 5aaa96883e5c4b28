#include "expedite/plan/fit.h"

#include <algorithm>
#include <cmath>

namespace expedite::plan {
namespace {

constexpr double kStep = 1e-4;  // on a constant's scale, for derivatives

struct Problem {
  std::span<const std::unique_ptr<RunPrediction>> runs;
  FitOptions options;
  std::vector<std::size_t> free = {};  // offsets that are fitted
};

Efficiencies efficiencies_of(const Calibration& calibration, const RunPrediction& run) {
  return calibration.of(run.device(), run.run().software->name);
}

/// Logarithm of predicted over published, in expected errors.
double residual(const Problem& problem, RunPrediction& run, const Efficiencies& efficiencies) {
  return std::log(run.predict(efficiencies) / run.run().published) / problem.options.relative_error;
}

double huber(double r, double outlier) {
  const double size = std::abs(r);
  return size <= outlier ? 0.5 * r * r : outlier * (size - 0.5 * outlier);
}

double objective(const Problem& problem, const Calibration& calibration) {
  double sum = 0.0;
  for (const auto& run : problem.runs) {
    sum += huber(residual(problem, *run, efficiencies_of(calibration, *run)), problem.options.outlier);
  }
  for (const std::size_t i : problem.free) {
    const double z = calibration.offsets()[i] / calibration.spread(i);
    sum += 0.5 * z * z;
  }
  return sum;
}

/// Normal equations: a [n][n], of which the lower half is kept, and b [n].
struct Normal {
  std::vector<double> a;
  std::vector<double> b;
};

Normal normal_equations(const Problem& problem, const Calibration& calibration) {
  const std::size_t n = problem.free.size();
  Normal normal{.a = std::vector<double>(n * n, 0.0), .b = std::vector<double>(n, 0.0)};
  std::vector<std::size_t> touched;
  std::vector<double> slope;
  for (const auto& run : problem.runs) {
    const Efficiencies here = efficiencies_of(calibration, *run);
    const double r = residual(problem, *run, here);
    // Every offset of a constant that the run has moves the prediction alike: one derivative per constant.
    std::array<double, kConstants> slopes{};
    for (std::size_t c = 0; c < kConstants; ++c) {
      Efficiencies there = here;
      there.values[c] = moved(c, here.values[c], kStep);
      slopes[c] = (residual(problem, *run, there) - r) / kStep;
    }
    touched.clear();
    slope.clear();
    for (std::size_t j = 0; j < n; ++j) {
      const std::size_t c = problem.free[j] % kConstants;
      if (slopes[c] == 0.0) {
        continue;
      }
      const bool mine = calibration.affects(problem.free[j], run->device(), run->run().software->name);
      if (mine) {
        touched.push_back(j);
        slope.push_back(slopes[c]);
      }
    }
    const double weight = std::min(1.0, problem.options.outlier / std::max(std::abs(r), 1e-9));
    for (std::size_t i = 0; i < touched.size(); ++i) {
      normal.b[touched[i]] -= weight * slope[i] * r;
      for (std::size_t j = 0; j <= i; ++j) {
        normal.a[touched[i] * n + touched[j]] += weight * slope[i] * slope[j];
      }
    }
  }
  for (std::size_t j = 0; j < n; ++j) {
    const double precision =
        1.0 / (calibration.spread(problem.free[j]) * calibration.spread(problem.free[j]));
    normal.a[j * n + j] += precision;
    normal.b[j] -= precision * calibration.offsets()[problem.free[j]];
  }
  return normal;
}

/// Solves (a + damping * diagonal of a) x = b by Cholesky's decomposition.
std::vector<double> solve(Normal normal, double damping) {
  const std::size_t n = normal.b.size();
  std::vector<double>& a = normal.a;
  for (std::size_t i = 0; i < n; ++i) {
    a[i * n + i] *= 1.0 + damping;
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (std::size_t k = 0; k < j; ++k) {
        sum -= a[i * n + k] * a[j * n + k];
      }
      a[i * n + j] = i == j ? std::sqrt(sum) : sum / a[j * n + j];
    }
  }
  std::vector<double> x = normal.b;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      x[i] -= a[i * n + k] * x[k];
    }
    x[i] /= a[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) {
      x[i] -= a[k * n + i] * x[k];
    }
    x[i] /= a[i * n + i];
  }
  return x;
}

}  // namespace

Calibration fit_calibration(std::span<const std::unique_ptr<RunPrediction>> runs, const FitOptions& options) {
  Calibration calibration;
  Problem problem{.runs = runs, .options = options};
  for (std::size_t i = 0; i < calibration.size(); ++i) {
    if (calibration.spread(i) > 0.0) {
      problem.free.push_back(i);
    }
  }
  double best = objective(problem, calibration);
  double damping = 1e-2;
  for (int iteration = 0; iteration < options.iterations; ++iteration) {
    const Normal normal = normal_equations(problem, calibration);
    bool improved = false;
    for (int attempt = 0; attempt < 8 && !improved; ++attempt) {
      const std::vector<double> step = solve(normal, damping);
      Calibration moved = calibration;
      for (std::size_t j = 0; j < step.size(); ++j) {
        moved.offsets()[problem.free[j]] += step[j];
      }
      const double value = objective(problem, moved);
      improved = value < best;
      if (improved) {
        const bool done = best - value < 1e-7 * best;
        calibration = std::move(moved);
        best = value;
        damping *= 0.3;
        if (done) {
          return calibration;
        }
      } else {
        damping *= 5.0;
      }
    }
    if (!improved) {
      break;
    }
  }
  return calibration;
}

}  // namespace expedite::plan
