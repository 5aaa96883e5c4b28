// A model on a process grid, ready to run steps.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "expedite/comm/process_grid.h"
#include "expedite/model/checkpoint_io.h"
#include "expedite/model/engine.h"
#include "tests/model/mpi/tiny_model.h"

namespace expedite::model::tests {

/// Whole tensors of a model, by name.
using Tensors = std::map<std::string, std::vector<float>>;

/// All ranks of the job. Communicators are slow to make where ranks share cores: these and the grids below
/// are made once, collectively.
[[nodiscard]] const comm::Communicator& job();
[[nodiscard]] const comm::ProcessGrid& grid_of(int expert_parallel_size);
/// This rank alone; collective the first time.
[[nodiscard]] const comm::ProcessGrid& lone_grid();

class Rig {
 public:
  /// Collective over the grid's world, as is everything below that says nothing else.
  Rig(const ModelConfig& config, DType dtype, const comm::ProcessGrid& grid, State state = State::training,
      const schedule::EpPlan& plan = {},
      const schedule::Builder& builder = schedule::step_builders().front());

  /// Sets this rank's weights (and masters). Not collective.
  void set_weights(const reference::Parameters& weights);
  /// One training step on this rank's part of the batch; `update`: up to new weights.
  StepResult step(const TinyBatch& batch, const StepOptions& options, bool update);
  /// The loss alone.
  StepResult evaluate(const TinyBatch& batch);

  /// Forward and backward of the first layer's mixture of experts alone, on this rank's rows [T, H] of input
  /// and of the gradient of the output. most_tokens: of any rank. Gradients of weights are not reduced.
  struct LayerResult {
    std::vector<float> output;
    std::vector<float> grad_input;
  };
  LayerResult run_layer(std::span<const double> input, std::span<const double> grad_output,
                        std::int64_t most_tokens);

  /// This rank's gradients: of what every rank holds, and of its own experts. Not collective.
  [[nodiscard]] Tensors gradients();
  /// A tensor's values where this rank holds them, 0 where others do.
  [[nodiscard]] std::vector<double> held_part(const std::string& name, std::vector<double> whole);
  /// All tensors, experts from their ranks; empty but on rank 0.
  [[nodiscard]] Tensors gather(StateTensor which);

  [[nodiscard]] Parameters& parameters() { return parameters_; }
  [[nodiscard]] Engine& engine() { return engine_; }
  [[nodiscard]] const comm::ProcessGrid& grid() const { return grid_; }

 private:
  const comm::ProcessGrid& grid_;
  MemoryPool pool_;
  Parameters parameters_;
  Engine engine_;
};

/// Collects what a step computes on this rank, by name and micro-batch.
class Observed {
 public:
  [[nodiscard]] Observer observer();
  [[nodiscard]] const std::map<std::pair<std::string, int>, std::vector<float>>& values() const {
    return values_;
  }

 private:
  std::map<std::pair<std::string, int>, std::vector<float>> values_;
};

/// max |ours - expected| over the larger of max |expected| and `floor`; infinite on a NaN or when sizes
/// differ.
[[nodiscard]] double relative_error(std::span<const float> ours, std::span<const double> expected,
                                    double floor = 0.0);

/// The divisors of n, ascending: the legal expert-parallel sizes.
[[nodiscard]] std::vector<int> divisors(int n);

}  // namespace expedite::model::tests
