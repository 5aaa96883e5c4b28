// A model whose layers' times stand in fixed proportions, in every kind of pipeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "expedite/cost/simulator.h"
#include "expedite/schedule/pipeline_order.h"
#include "expedite/schedule/pipeline_step.h"

namespace expedite::bench {

/// Sizes as in PipelineShape; a stage is one expert-parallel group, times `replicas` for gradient reduction.
struct PipelineModel {
  int stages = 16;
  int virtual_stages = 2;  // of the kinds that have them
  int micro_batches = 64;
  int layers = 61;
  int dense_layers = 3;  // the first ones
  int mtp_layers = 1;    // besides `layers`
  int expert_parallel_size = 32;
  int ranks_per_node = 8;
  int replicas = 2;
  double compute_to_communication = 1.5;  // of an MoE layer, forward and backward: compute over its exchanges
  int chunks = 1;                         // of an MoE layer, outside of pairs
  schedule::LayerRecompute recompute = schedule::LayerRecompute::none;
};

/// The model in one kind of pipeline, of which rank 0 of each stage is built and simulated: they behave
/// alike.
class SimulatedPipeline {
 public:
  /// Layers are placed by cost. Throws Error for what the kind cannot do.
  SimulatedPipeline(const PipelineModel& model, schedule::PipelineKind kind);

  [[nodiscard]] const schedule::PipelineShape& shape() const { return shape_; }
  [[nodiscard]] const std::vector<int>& bounds() const { return bounds_; }
  [[nodiscard]] const std::vector<schedule::Schedule>& schedules() const { return schedules_; }
  [[nodiscard]] double build_seconds() const { return build_seconds_; }
  /// In units of milliseconds.
  [[nodiscard]] cost::Simulation simulate(const cost::SimulationOptions& options) const;

  /// What one task takes, in seconds.
  [[nodiscard]] cost::TaskCost cost_of(const schedule::Task& task) const;

 private:
  [[nodiscard]] schedule::PipelineSpec spec_of(int stage) const;
  [[nodiscard]] std::vector<double> item_costs() const;
  [[nodiscard]] double share_of(const schedule::Task& task) const;

  PipelineModel model_;
  schedule::PipelineShape shape_;
  std::vector<bool> sparse_;
  double exchange_ = 0.0;  // one way, seconds
  std::vector<int> bounds_;
  std::vector<schedule::Schedule> schedules_;
  double build_seconds_ = 0.0;
};

}  // namespace expedite::bench
