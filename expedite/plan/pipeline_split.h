// Which layers a strategy puts on which virtual stage, as training programs are told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "expedite/plan/step_cost.h"

namespace expedite::plan {

struct PipelineSplit {
  int stages = 1;
  int virtual_stages = 1;
  std::vector<std::int32_t> layers;  // [virtual stage][stage], in the order of the model
  std::int32_t prediction = 0;       // multi-token prediction layers: all on the last part, before the head

  /// Every part has the same number of layers.
  [[nodiscard]] bool even() const;
  [[nodiscard]] bool has_part_without_layers() const;
  [[nodiscard]] std::int32_t most_layers() const;
};

/// As the plan assumed it: layers on virtual stages so that the dearest is as cheap as possible, or evenly by
/// number, as the software does. Prediction layers are with the head, where all releases of Megatron have
/// them.
[[nodiscard]] PipelineSplit pipeline_split(const CostContext& context, const Strategy& strategy);

/// Megatron's --pipeline-model-parallel-layout: E embedding, t a layer, m a prediction layer, L head with
/// loss, | between parts. Repetitions are written as (tt|)*3 and t*4.
[[nodiscard]] std::string layout_of(const PipelineSplit& split);

}  // namespace expedite::plan
