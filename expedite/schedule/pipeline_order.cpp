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

std::string without_virtual_stages(const PipelineShape& shape) {
  return shape.virtual_stages == 1
             ? std::string()
             : fmt::format("{} has no virtual stages: take 1, not {}, or interleaved_1f1b or adaptive_pipe",
                           name_of(shape.kind), shape.virtual_stages);
}

std::string dualpipe_problem(const PipelineShape& shape) {
  if (std::string problem = without_virtual_stages(shape); !problem.empty()) {
    return problem;
  }
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

bool whole_rounds(const PipelineShape& shape) {
  return shape.micro_batches % shape.stages == 0;
}

std::string interleaved_problem(const PipelineShape& shape) {
  if (shape.virtual_stages < 2) {
    return "interleaved_1f1b needs at least 2 virtual stages; with one it is 1f1b";
  }
  return whole_rounds(shape) ? std::string() : multiples_of_stages(shape);
}

std::string adaptive_problem(const PipelineShape& shape) {
  return shape.virtual_stages == 1 || whole_rounds(shape) ? std::string() : multiples_of_stages(shape);
}

/// One line per kind.
struct KindOfPipeline {
  PipelineKind kind;
  std::string_view name;
  std::string (*problem)(const PipelineShape& shape);  // each size is at least 1
  std::vector<Action> (*order)(const PipelineShape& shape, int stage);
};
constexpr std::array kKinds = {
    KindOfPipeline{PipelineKind::one_f_one_b, "1f1b", without_virtual_stages, one_f_one_b_order},
    KindOfPipeline{PipelineKind::interleaved, "interleaved_1f1b", interleaved_problem, interleaved_order},
    KindOfPipeline{PipelineKind::zero_bubble_h1, "zero_bubble_h1", without_virtual_stages,
                   zero_bubble_h1_order},
    KindOfPipeline{PipelineKind::dualpipe, "dualpipe", dualpipe_problem, dualpipe_order},
    KindOfPipeline{PipelineKind::adaptive_pipe, "adaptive_pipe", adaptive_problem, adaptive_pipe_order},
};
static_assert(kKinds.size() == kPipelineKinds.size());

const KindOfPipeline& of(PipelineKind kind) {
  return *std::ranges::find(kKinds, kind, &KindOfPipeline::kind);
}

}  // namespace

std::string_view name_of(PipelineKind kind) {
  return of(kind).name;
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
  return of(shape.kind).problem(shape);
}

std::vector<Action> stage_order(const PipelineShape& shape, int stage) {
  const std::string problem = problem_of(shape);
  require(problem.empty(), "{}", problem);
  require(stage >= 0 && stage < shape.stages, "stage {} of a pipeline whose stages are 0 to {}", stage,
          shape.stages - 1);
  return of(shape.kind).order(shape, stage);
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
