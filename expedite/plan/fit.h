// Fits a calibration to measured runs.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "expedite/plan/calibration.h"
#include "expedite/plan/run_prediction.h"

namespace expedite::plan {

struct FitOptions {
  double relative_error = 0.03;  // expected of a prediction with right constants
  double outlier = 1;            // errors beyond so many times count linearly, not squared (Huber, 1964)
  int iterations = 25;
};

/// The constants of the least squared errors of logarithms, together with how far they are from their priors:
/// the posterior's mode, by Levenberg-Marquardt steps (Marquardt, 1963) with numerical derivatives. The same
/// runs give the same constants.
[[nodiscard]] Calibration fit_calibration(std::span<const std::unique_ptr<RunPrediction>> runs,
                                          const FitOptions& options = {});

}  // namespace expedite::plan
