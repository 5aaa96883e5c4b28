// Which layers stand on which pipeline stage.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "expedite/architecture/model_config.h"

namespace expedite::plan {

inline constexpr int kMaxStages = 256;

/// What one kind of layer and the ends of the model cost, in any unit.
struct PieceCosts {
  double dense = 0.0;
  double moe = 0.0;
  double embedding = 0.0;
  double head = 0.0;        // with its loss
  double prediction = 0.0;  // one multi-token prediction layer with its loss
};

/// A run of layers of one kind.
struct LayerRun {
  architecture::LayerKind kind = architecture::LayerKind::dense;
  std::int32_t count = 0;
};
/// A model whose kinds alternate more often than kMaxRuns keeps its kinds in even shares.
inline constexpr std::size_t kMaxRuns = 8;
[[nodiscard]] std::vector<LayerRun> layer_runs(const ModelConfig& model);

struct Stages {
  int count = 1;
  std::array<std::int16_t, kMaxStages> dense{};
  std::array<std::int16_t, kMaxStages> moe{};
  double slowest = 0.0;
  double mean = 0.0;
};

/// Layers in their order on `stages` stages; embedding on the first, multi-token prediction and head on the
/// last. `balanced`: so that the slowest stage is as fast as consecutive layers allow, to about a thousandth;
/// otherwise as evenly by count as the layers go. Nothing is allocated.
void place_layers(const std::vector<LayerRun>& runs, std::int64_t mtp_layers, const PieceCosts& costs,
                  int stages, bool balanced, Stages& placed);

}  // namespace expedite::plan
