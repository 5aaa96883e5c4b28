// Pipelines of all kinds for tests.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "expedite/schedule/pipeline_order.h"

namespace expedite::schedule::testing {

inline std::string name_of(const PipelineShape& shape) {
  return fmt::format("{} p={} v={} m={}", schedule::name_of(shape.kind), shape.stages, shape.virtual_stages,
                     shape.micro_batches);
}

/// All legal ones up to these sizes.
inline std::vector<PipelineShape> legal_shapes(int stages, int virtual_stages, int micro_batches) {
  std::vector<PipelineShape> shapes;
  for (const PipelineKind kind : kPipelineKinds) {
    for (int p = 1; p <= stages; ++p) {
      for (int v = 1; v <= virtual_stages; ++v) {
        for (int m = 1; m <= micro_batches; ++m) {
          const PipelineShape shape{kind, p, v, m};
          if (problem_of(shape).empty()) {
            shapes.push_back(shape);
          }
        }
      }
    }
  }
  return shapes;
}

}  // namespace expedite::schedule::testing
