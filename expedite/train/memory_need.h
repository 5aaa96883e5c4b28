// Whether a run fits into the memory of the machines that are to run it, before it has taken any.
#pragma once

#include <cstdint>
#include <span>

#include "expedite/architecture/model_config.h"
#include "expedite/comm/grid_layout.h"
#include "expedite/model/parameters.h"
#include "expedite/train/config.h"

namespace expedite::train {

/// Bytes that some ranks take together.
struct MemoryNeed {
  std::int64_t parameters = 0;  // weights, gradients, optimizer state
  std::int64_t step = 0;        // activations and buffers at their peak, experts being loaded evenly
  std::int64_t text = 0;        // of each rank's copy, with its ids

  [[nodiscard]] std::int64_t total() const { return parameters + step + text; }
};

/// Of the given ranks. `state`: training, or weights for evaluation alone. What is left to measurement
/// (dispatcher or chunks `auto`) is taken at its simplest.
[[nodiscard]] MemoryNeed memory_need(const TrainConfig& config, const ModelConfig& model,
                                     const comm::Placement& placement, std::span<const int> ranks,
                                     model::State state, std::int64_t text_bytes);

/// Throws Error with the numbers, and what would need less, unless `need` is within `available`.
void require_memory(const MemoryNeed& need, std::int64_t ranks, std::int64_t available);

}  // namespace expedite::train
