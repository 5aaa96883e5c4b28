// What a training step takes and how much memory it needs, in closed form.
#pragma once

#include <cstdint>

#include "expedite/plan/layer_cost.h"
#include "expedite/plan/memory.h"
#include "expedite/plan/stages.h"
#include "expedite/plan/strategy.h"

namespace expedite::plan {

/// Of the slowest stage's rank; the parts add up to `total`.
struct StepSeconds {
  double total = 0.0;
  Seconds work;            // of all micro-batches on the slowest stage
  double bubble = 0.0;     // of the pipeline
  double sends = 0.0;      // between stages, exposed
  double gradients = 0.0;  // exposed communication of gradients and weights over data parallelism
  double optimizer = 0.0;
  double overhead = 0.0;     // of the step
  double expert_wire = 0.0;  // all-to-alls, hidden or not; the exposed ones are in `work`
};

/// Of the rest of a step: most of what a program was fitted to are steps of seconds, and what they spend
/// besides their work tells little of short ones.
inline constexpr double kMostOverhead = 0.1;

struct StepCost {
  StepSeconds seconds;
  Memory memory;
  double tokens_per_s_per_device = 0.0;
  double mfu = 0.0;  // model_flops over the peak of the precision
};

/// What pieces of the model take: the part of a strategy's cost that does not depend on pp, vpp, dp, zero and
/// the schedule.
struct PieceTimes {
  LayerTimes dense;
  LayerTimes moe;
  LayerTimes head;
  LayerTimes projection;  // of a multi-token prediction layer
  LayerTimes prediction;  // such a layer with its projection and head
};
[[nodiscard]] PieceTimes piece_times(const CostContext& context, const Strategy& strategy);

/// What layers are placed by: where another micro-batch hides all-to-alls, without them.
[[nodiscard]] PieceCosts piece_costs(const PieceTimes& pieces, const Strategy& strategy);

/// An all-gather or reduce-scatter over the ranks that hold the same parameters, at so many bytes each:
/// seconds for dense ones and for those of experts.
struct ReplicaSeconds {
  double dense = 0.0;
  double experts = 0.0;
  [[nodiscard]] double total() const { return dense + experts; }
};
[[nodiscard]] ReplicaSeconds replica_gather_seconds(const CostContext& context, const Strategy& strategy,
                                                    const ParameterBytes& parameters,
                                                    double bytes_per_parameter);
/// Bytes on the wire per parameter when gradients are reduced at the end of a step: sharded, once; else the
/// all-reduce gathers them again.
[[nodiscard]] double reduced_bytes(const CostContext& context, const Strategy& strategy);
/// Adam over what a rank updates of its parameters.
[[nodiscard]] double optimizer_seconds(const CostContext& context, const Strategy& strategy,
                                       const ParameterBytes& parameters);
/// A micro-batch's activations between stages: every rank of tp sends a part, which without sequence
/// parallelism the receivers gather (scatter/gather, Narayanan et al. 2021). Bytes that a rank sends.
[[nodiscard]] double message_bytes(const CostContext& context, const Strategy& strategy);
[[nodiscard]] double message_seconds(const CostContext& context, const Strategy& strategy, double bytes);
inline constexpr double kWeightBytes = 2.0;

/// FLOP of a step that a model needs, forward and backward: products six times their parameters per token,
/// attention as causal, nothing for recomputation.
[[nodiscard]] double model_flops(const ModelConfig& model, const Workload& workload);

/// Costs strategies of one context. Pipeline bubbles: 1F1B and interleaved, Narayanan et al. (2021,
/// arXiv:2104.04473); zero-bubble H1 and H2, Qi et al. (2024, arXiv:2401.10241); DualPipe, DeepSeek-AI (2024,
/// arXiv:2412.19437); Adaptive Pipe, cost/bubble.h. ZeRO: Rajbhandari et al. (2020, arXiv:1910.02054). Reads
/// the context only: threads may share one.
class StepCoster {
 public:
  explicit StepCoster(const CostContext& context);

  /// The strategy must be legal, and `pieces` piece_times of it. Nothing is allocated.
  [[nodiscard]] StepCost cost(const Strategy& strategy, const PieceTimes& pieces) const;
  [[nodiscard]] StepCost cost(const Strategy& strategy) const {
    return cost(strategy, piece_times(context_, strategy));
  }

  [[nodiscard]] const CostContext& context() const { return context_; }

 private:
  [[nodiscard]] double gradient_seconds(const Strategy& strategy, const ParameterBytes& parameters,
                                        double work_of_micro_batch, double micro_batches) const;

  const CostContext& context_;
  std::vector<LayerRun> runs_;
  MemoryModel memory_;
  double flops_;
};

}  // namespace expedite::plan
