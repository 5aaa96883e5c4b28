#include "expedite/schedule/pipeline_order.h"

#include <fmt/format.h>

#include <algorithm>

#include "expedite/base/error.h"
#include "expedite/schedule/pipeline_kinds.h"

namespace expedite::schedule {
namespace {

std::string multiples_of_stages(const PipelineShape& shape) {
  const int below = shape.micro_batches / shape.stages * shape.stages;
  const std::string fewer = below > 0 ? fmt::format("{} or ", below) : "";
  return fmt::format(
      "{} with {} virtual stages needs micro-batches in multiples of its {} stages, not {}: "
      "take {}{}",
      name_of(shape.kind), shape.virtual_stages, shape.stages, shape.micro_batches, fewer,
      below + shape.stages);
}

std::string dualpipe_problem(const PipelineShape& shape) {
  if (shape.stages % 2 != 0) {
    return fmt::format("dualpipe needs an even number of stages, not {}: take {} or {}", shape.stages,
                       std::max(2, shape.stages - 1), shape.stages + 1);
  }
  if (shape.micro_batches % 2 != 0 || shape.micro_batches < 2 * shape.stages) {
    return fmt::format("dualpipe on {} stages needs an even number of micro-batches, at least {}, not {}",
                       shape.stages, 2 * shape.stages, shape.micro_batches);
  }
  return {};
}

}  // namespace

std::string_view name_of(PipelineKind kind) {
  switch (kind) {
    case PipelineKind::one_f_one_b:
      return "1f1b";
    case PipelineKind::interleaved:
      return "interleaved_1f1b";
    case PipelineKind::zero_bubble_h1:
      return "zero_bubble_h1";
    case PipelineKind::dualpipe:
      return "dualpipe";
    case PipelineKind::adaptive_pipe:
      return "adaptive_pipe";
  }
  return "?";
}

std::optional<PipelineKind> parse_pipeline_kind(std::string_view name) {
  const auto* const found =
      std::ranges::find(kPipelineKinds, name, [](PipelineKind kind) { return name_of(kind); });
  return found == kPipelineKinds.end() ? std::nullopt : std::optional(*found);
}

std::vector<std::string> pipeline_kind_names() {
  std::vector<std::string> names;
  for (const PipelineKind kind : kPipelineKinds) {
    names.emplace_back(name_of(kind));
  }
  return names;
}

std::string problem_of(const PipelineShape& shape) {
  if (shape.stages < 1 || shape.virtual_stages < 1 || shape.micro_batches < 1) {
    return fmt::format(
        "a pipeline of {} stages, {} virtual stages and {} micro-batches: each must be at least 1",
        shape.stages, shape.virtual_stages, shape.micro_batches);
  }
  const bool whole_rounds = shape.micro_batches % shape.stages == 0;
  switch (shape.kind) {
    case PipelineKind::interleaved:
      if (shape.virtual_stages < 2) {
        return "interleaved_1f1b needs at least 2 virtual stages; with one it is 1f1b";
      }
      return whole_rounds ? std::string() : multiples_of_stages(shape);
    case PipelineKind::adaptive_pipe:
      return shape.virtual_stages == 1 || whole_rounds ? std::string() : multiples_of_stages(shape);
    default:
      break;
  }
  if (shape.virtual_stages != 1) {
    return fmt::format("{} has no virtual stages: take 1, not {}, or interleaved_1f1b or adaptive_pipe",
                       name_of(shape.kind), shape.virtual_stages);
  }
  return shape.kind == PipelineKind::dualpipe ? dualpipe_problem(shape) : std::string();
}

std::vector<Action> stage_order(const PipelineShape& shape, int stage) {
  const std::string problem = problem_of(shape);
  require(problem.empty(), "{}", problem);
  require(stage >= 0 && stage < shape.stages, "stage {} of a pipeline whose stages are 0 to {}", stage,
          shape.stages - 1);
  switch (shape.kind) {
    case PipelineKind::one_f_one_b:
      return one_f_one_b_order(shape, stage);
    case PipelineKind::interleaved:
      return interleaved_order(shape, stage);
    case PipelineKind::zero_bubble_h1:
      return zero_bubble_h1_order(shape, stage);
    case PipelineKind::dualpipe:
      return dualpipe_order(shape, stage);
    case PipelineKind::adaptive_pipe:
      return adaptive_pipe_order(shape, stage);
  }
  return {};
}

int parts_of(const PipelineShape& shape) {
  return shape.stages * shape.virtual_stages;
}

int virtual_stages_of(const PipelineShape& shape) {
  return shape.kind == PipelineKind::dualpipe ? 2 : shape.virtual_stages;
}

int part_at(const PipelineShape& shape, int stage, int virtual_stage) {
  return runs_down(shape, virtual_stage) ? shape.stages - 1 - stage : virtual_stage * shape.stages + stage;
}

bool runs_down(const PipelineShape& shape, int virtual_stage) {
  return shape.kind == PipelineKind::dualpipe && virtual_stage == 1;
}

}  // namespace expedite::schedule
