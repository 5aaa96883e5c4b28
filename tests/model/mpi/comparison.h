// Steps of a model, held against the reference in double precision.
#pragma once

#include <cstdint>
#include <string>

#include "tests/model/mpi/rig.h"

namespace expedite::model::tests {

/// How far losses, what lies between layers, and gradients may be from exact arithmetic, relative to the
/// largest value of their kind: docs/correctness.md derives it. longest_sum: addends of a product's element.
[[nodiscard]] double step_tolerance(const ModelConfig& config, DType dtype, schedule::Dispatcher dispatcher,
                                    std::int64_t longest_sum);

class Comparison {
 public:
  /// The problem must outlive the comparison.
  Comparison(const Problem& problem, const BalanceOptions& balance);

  /// Runs the step on a grid and compares all of it. Returns what it computed on the way. Collective.
  Observed run(DType dtype, const comm::ProcessGrid& grid, const schedule::EpPlan& plan = {});

  /// The largest error of all runs over what was allowed, as this rank has seen it.
  [[nodiscard]] double largest_error() const { return largest_error_; }

 private:
  [[nodiscard]] double tolerance_of(DType dtype, schedule::Dispatcher dispatcher) const;
  /// What a gradient's error is held against where the gradient itself is small. One a thousandth of the
  /// largest holds little but the rounding of others; a router's and a shared expert's gate's are made of dot
  /// products of rows that may cancel; those of queries and keys are differences of numbers as large as the
  /// gradient of the values, and vanish where a token sees only itself.
  [[nodiscard]] double noise_of(const std::string& name) const;
  /// Both relative.
  void expect_within(double error, double tolerance, const std::string& what);
  void compare_result(const StepResult& result, double tolerance);
  void compare_observed(const Observed& observed, int rank, double tolerance);
  /// One exchange of routing for each sparse layer and micro-batch.
  void compare_exchanges(Rig& rig) const;

  const Problem& problem_;
  BalanceOptions balance_;
  Expected expected_;
  double largest_gradient_ = 0.0;
  double largest_error_ = 0.0;
};

}  // namespace expedite::model::tests
