// Steps of a model, held against the reference in double precision.
#pragma once

#include <string>

#include "tests/model/mpi/rig.h"

namespace expedite::model::tests {

class Comparison {
 public:
  /// `tolerance`: how far losses, what lies between layers, and gradients may be from the reference's,
  /// relative to the largest value of their kind. The problem must outlive the comparison.
  Comparison(const Problem& problem, const BalanceOptions& balance, double tolerance);

  /// Runs the step on a grid and compares all of it. Returns what it computed on the way. Collective.
  Observed run(DType dtype, const comm::ProcessGrid& grid, const schedule::EpPlan& plan = {}) const;

 private:
  /// What a gradient's error is held against where the gradient itself is small. One a thousandth of the
  /// largest holds little but the rounding of others; a router's and a shared expert's gate's are made of dot
  /// products of rows that may cancel; those of queries and keys are differences of numbers as large as the
  /// gradient of the values, and vanish where a token sees only itself.
  [[nodiscard]] double noise_of(const std::string& name) const;
  void compare_result(const StepResult& result) const;
  void compare_observed(const Observed& observed, int rank) const;
  /// One exchange of routing for each sparse layer and micro-batch.
  void compare_exchanges(Rig& rig) const;

  const Problem& problem_;
  BalanceOptions balance_;
  double tolerance_;
  Expected expected_;
  double largest_gradient_ = 0.0;
};

}  // namespace expedite::model::tests
