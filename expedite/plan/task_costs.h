// What each task of a strategy's schedules takes: the closed form's own figures, operation by operation.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "expedite/cost/simulator.h"
#include "expedite/plan/step_schedules.h"

namespace expedite::plan {

class TaskCosts {
 public:
  /// Reads the context only; keeps references to it and to `schedules`.
  TaskCosts(const CostContext& context, const Strategy& strategy, const StepSchedules& schedules);

  /// Of a task of a rank of that kind. Chunks cost their share of the layer; in pairs, where the layer is
  /// whole, products are too.
  [[nodiscard]] cost::TaskCost of(const schedule::Task& task, bool busiest) const;
  /// What compute works on, by cause; tensor and context parallelism's exposed communication is part of it.
  [[nodiscard]] Seconds work_of(const schedule::Task& task, bool busiest) const;
  /// What such a rank holds besides what its tasks acquire; logits while the loss runs.
  [[nodiscard]] Memory held(const RankKind& kind) const;

 private:
  struct Passes {
    Seconds forward, recompute, input_grad, weight_grad;
    [[nodiscard]] const Seconds& of(schedule::Pass pass) const;
  };
  struct LayerPasses {
    std::array<Passes, kOperations> of;
    ExchangeTimes exchange;
  };
  struct LayerCosts {
    LayerPasses chunked;
    LayerPasses whole;
  };

  [[nodiscard]] LayerPasses passes_of(const Strategy& strategy, architecture::LayerKind kind,
                                      bool busiest) const;
  [[nodiscard]] const LayerCosts& layer(const schedule::Task& task, bool busiest) const;
  [[nodiscard]] double exchange_seconds(const schedule::Task& task) const;
  [[nodiscard]] ParameterBytes parameters_of(int layer) const;
  [[nodiscard]] double reduce_seconds(const schedule::Task& task) const;
  [[nodiscard]] double gather_weights_seconds(const schedule::Task& task) const;
  [[nodiscard]] double message_bytes(const schedule::Task& task) const;

  const CostContext& context_;
  const Strategy strategy_;
  const StepSchedules& schedules_;
  MemoryModel memory_;
  int layers_;                                      // with those of multi-token prediction
  std::array<std::array<LayerCosts, 2>, 2> costs_;  // by kind of layer, and busiest or not
  Passes head_;
  Passes projection_;
  double message_bytes_ = 0.0;
  double overhead_ = 0.0;  // of the step
};

}  // namespace expedite::plan
