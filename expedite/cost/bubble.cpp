#include "expedite/cost/bubble.h"

#include <algorithm>
#include <cmath>

#include "expedite/base/error.h"

namespace expedite::cost {
namespace {

using schedule::PipelineKind;
using schedule::PipelineShape;

bool nearly_equal(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

double zero_bubble_h1(const PipelineShape& shape, const StageTimes& times) {
  require(times.weight_grad <= times.forward && times.weight_grad <= times.input_grad,
          "the bubble of zero_bubble_h1 in closed form is for weight gradients ({}) that take no longer than "
          "forward ({}) and input gradients ({}): simulate the schedule",
          times.weight_grad, times.forward, times.input_grad);
  const int filled = std::min(shape.stages, shape.micro_batches) - 1;
  return (shape.stages - 1) * (times.forward + times.input_grad) - filled * times.weight_grad;
}

double dualpipe(const PipelineShape& shape, const StageTimes& times) {
  require(
      nearly_equal(times.forward, times.input_grad) && times.weight_grad <= times.forward,
      "the bubble of dualpipe in closed form is for input gradients ({}) that take as long as forward ({}), "
      "and weight gradients ({}) that take no longer: simulate the schedule",
      times.input_grad, times.forward, times.weight_grad);
  const int half = shape.stages / 2;
  return (half - 1) * (times.paired() + times.backward() - 3.0 * times.weight_grad);
}

double adaptive_pipe(const PipelineShape& shape, const StageTimes& times) {
  require(shape.stages >= 2 && shape.micro_batches >= 2 * shape.stages,
          "the bubble of adaptive_pipe in closed form is for two stages or more and at least twice as many "
          "micro-batches, not {} and {}: simulate the schedule",
          shape.stages, shape.micro_batches);
  const double unfilled = std::max(0.0, times.paired() - times.backward() - times.weight_grad);
  return ((shape.stages - 1) * (times.forward + 2.0 * times.backward() - times.paired()) + times.paired() -
          times.backward() + (shape.stages - 2) * unfilled) /
         shape.virtual_stages;
}

/// Of the stage that has most of them, in virtual stages.
int most_pairs(const PipelineShape& shape) {
  switch (shape.kind) {
    case PipelineKind::dualpipe:
      return shape.micro_batches - shape.stages - 1;
    case PipelineKind::adaptive_pipe:
      return std::max(
          0, shape.micro_batches * shape.virtual_stages - (shape.virtual_stages - 1) * shape.stages - 1);
    default:
      return 0;
  }
}

}  // namespace

double bubble(const PipelineShape& shape, const StageTimes& times) {
  const std::string problem = schedule::problem_of(shape);
  require(problem.empty(), "{}", problem);
  const double both = times.forward + times.backward();
  switch (shape.kind) {
    case PipelineKind::one_f_one_b:
      return (shape.stages - 1) * both;
    case PipelineKind::interleaved:
      return (shape.stages - 1) * both / shape.virtual_stages;
    case PipelineKind::zero_bubble_h1:
      return zero_bubble_h1(shape, times);
    case PipelineKind::dualpipe:
      return dualpipe(shape, times);
    case PipelineKind::adaptive_pipe:
      return adaptive_pipe(shape, times);
  }
  return 0.0;
}

double least_busy(const PipelineShape& shape, const StageTimes& times) {
  const double both = times.forward + times.backward();
  return shape.micro_batches * both - most_pairs(shape) * (both - times.paired()) / shape.virtual_stages;
}

}  // namespace expedite::cost
