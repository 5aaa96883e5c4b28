// How well the closed form predicts published runs: constants fitted to one half, errors of both.
#pragma once

#include <string>
#include <vector>

#include "expedite/plan/fit.h"
#include "expedite/plan/runs.h"

namespace expedite::plan {

struct PredictedRun {
  Run run;
  double predicted = 0.0;  // in the run's metric
  bool fitted = false;     // constants were fitted to the half that the run is in

  /// |predicted / published - 1|.
  [[nodiscard]] double error() const;
};

struct ErrorSummary {
  std::string name;
  std::int64_t runs = 0;
  double median = 0.0;
  double mean = 0.0;
  double worst = 0.0;
};

struct RankCorrelation {
  std::string group;
  std::int64_t runs = 0;
  double spearman = 0.0;
  double reachable = 0.0;  // spearman_with_errors of the published values with kGoodError
};

/// Standard deviation of the logarithms of predictions that would be called good.
inline constexpr double kGoodError = 0.03;

struct Validation {
  Calibration calibration;
  std::int64_t fitted_rows = 0;
  std::vector<PredictedRun> runs;

  /// Of comparable rows of that kind in one half: one summary per program and the last of all.
  [[nodiscard]] std::vector<ErrorSummary> errors(MetricKind kind, bool fitted) const;
  /// Of step times and rates inside groups of at least five runs; all of the group, or the half only that
  /// nothing was fitted to.
  [[nodiscard]] std::vector<RankCorrelation> correlations(bool held_out_only) const;
};

/// A table with fewer rows to fit to says too little of that many constants.
inline constexpr std::int64_t kFewestToFit = 100;

/// Fits to in_fitted_half with `salt`: rows of time and memory, and of rows of FLOP/s those whose run has no
/// row of time. If they are fewer than kFewestToFit, nothing is fitted: every row is held out and predicted
/// with builtin_calibration().
[[nodiscard]] Validation validate(const std::vector<Run>& runs, std::string_view salt = "");

/// Spearman's rank correlation; equal values share their mean rank.
[[nodiscard]] double spearman(const std::vector<double>& a, const std::vector<double>& b);

/// The mean of Spearman's correlation of `values` with predictions of them that err by chance: each is the
/// value times a lognormal number of that standard deviation. Values closer to each other than errors cannot
/// be told apart, so that in a group of like values even good predictions correlate little.
[[nodiscard]] double spearman_with_errors(const std::vector<double>& values, double error);

/// For people, and one JSON object per run: id, metric, published, predicted, half.
[[nodiscard]] std::string describe(const Validation& validation);
[[nodiscard]] std::string to_json(const Validation& validation);

/// The lines of fitted_constants.inc.
[[nodiscard]] std::string constants_source(const Calibration& calibration);

}  // namespace expedite::plan
