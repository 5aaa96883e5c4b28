// What the closed form says of a measured run, in the run's own metric.
#pragma once

#include <string_view>
#include <vector>

#include "expedite/plan/runs.h"
#include "expedite/plan/step_cost.h"

namespace expedite::plan {

class RunPrediction {
 public:
  /// Throws Error when the run's device or precision cannot be.
  explicit RunPrediction(const Run& run);
  RunPrediction(const RunPrediction&) = delete;
  RunPrediction& operator=(const RunPrediction&) = delete;

  [[nodiscard]] const Run& run() const { return run_; }
  /// The device's kind, as calibrations name it.
  [[nodiscard]] std::string_view device() const { return device_; }
  /// In the run's metric. Of knobs that the source does not tell, the fastest values.
  [[nodiscard]] double predict(const Efficiencies& efficiencies);
  [[nodiscard]] StepCost cost(const Efficiencies& efficiencies);

 private:
  const Run run_;
  std::string_view device_;
  CostContext context_;
  StepCoster coster_;
  std::vector<Strategy> candidates_;
  double flops_;
  double peak_;
};

}  // namespace expedite::plan
