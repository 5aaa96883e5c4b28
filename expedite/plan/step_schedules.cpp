#include "expedite/plan/step_schedules.h"

#include <algorithm>
#include <cmath>

#include "expedite/architecture/buffer_bytes.h"
#include "expedite/base/error.h"
#include "expedite/cost/layer_balance.h"

namespace expedite::plan {
namespace {

using schedule::LayerRecompute;
using schedule::PipelineKind;
using schedule::PipelineShape;
using schedule::PipelineSpec;
using schedule::StepSpec;

PipelineShape shape_of(const Strategy& s, const Workload& workload) {
  PipelineShape shape{.stages = s.pp,
                      .virtual_stages = s.vpp,
                      .micro_batches = static_cast<int>(workload.global_batch / s.dp / s.micro_batch)};
  switch (s.pipeline) {
    case Pipeline::one_f_one_b:
      shape.kind = s.vpp > 1 ? PipelineKind::interleaved : PipelineKind::one_f_one_b;
      break;
    case Pipeline::zero_bubble_h1:
      shape.kind = PipelineKind::zero_bubble_h1;
      break;
    case Pipeline::zero_bubble_h2:
      fail(
          "pipeline=zb-h2 is costed in closed form only: no schedule of it is built; simulate "
          "pipeline=zb-h1");
    case Pipeline::dualpipe:
      shape.kind = PipelineKind::dualpipe;
      break;
    case Pipeline::adaptive:
      shape.kind = PipelineKind::adaptive_pipe;
      break;
  }
  const std::string problem = problem_of(shape);
  require(problem.empty(), "pipeline={}: {}", kPipelineNames[static_cast<std::size_t>(s.pipeline)], problem);
  require(s.pipeline != Pipeline::dualpipe || s.zero < 2,
          "zero={} with pipeline=dualpipe cannot be built: the copies of a stage take their micro-batches in "
          "different orders; take zero=1",
          s.zero);
  return shape;
}

/// `count` ranks, `stride` apart.
std::vector<int> ranks(std::int64_t first, std::int64_t count, std::int64_t stride) {
  std::vector<int> all(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    all[static_cast<std::size_t>(i)] = static_cast<int>(first + i * stride);
  }
  return all;
}

class Builder {
 public:
  Builder(const CostContext& context, const Strategy& strategy, const PieceTimes& pieces)
      : context_(context),
        model_(context.model()),
        strategy_(strategy),
        per_stage_(std::int64_t{strategy.tp} * strategy.cp * strategy.dp) {
    result_.shape = shape_of(strategy, context.workload());
    for (std::int64_t layer = 0; layer < model_.layers + model_.prediction_layers; ++layer) {
      layers_.push_back(model_.kind(layer));
    }
    result_.bounds = layer_bounds(context, strategy, pieces);
  }

  StepSchedules build() {
    const std::int64_t groups = per_stage_ / (std::int64_t{strategy_.ep} * strategy_.etp);
    for (int stage = 0; stage < strategy_.pp; ++stage) {
      const std::int64_t busiest = unlike() ? groups * strategy_.etp : per_stage_;
      result_.kinds.push_back({stage, true, static_cast<int>(busiest)});
      if (unlike()) {
        result_.kinds.push_back({stage, false, static_cast<int>(per_stage_ - busiest)});
      }
    }
    for (const RankKind& kind : result_.kinds) {
      result_.schedules.push_back(build_pipeline_step(spec_of(kind)));
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] PipelineSpec spec_of(const RankKind& kind) const {
    const std::int64_t first = kind.stage * per_stage_;
    const std::int64_t rank = first + (kind.busiest ? 0 : strategy_.etp);
    PipelineSpec spec;
    spec.shape = result_.shape;
    spec.stage = kind.stage;
    spec.bounds = result_.bounds;
    spec.mtp_layers = static_cast<int>(model_.prediction_layers);
    const bool layers_again =
        strategy_.recompute == Recompute::half || strategy_.recompute == Recompute::full;
    spec.recompute = layers_again ? LayerRecompute::full : LayerRecompute::none;
    spec.recompute_every = strategy_.recompute == Recompute::half ? 2 : 1;
    const bool shards = std::int64_t{strategy_.dp} * strategy_.cp > 1;
    spec.sharded_optimizer = shards && strategy_.zero >= 1;
    spec.sharded_gradients = shards && strategy_.zero >= 2;
    spec.sharded_weights = shards && strategy_.zero >= 3;
    spec.step.rank = static_cast<int>(rank);
    set_groups(spec.step, rank, first);
    set_plan(spec.step);
    set_sizes(spec.step);
    spec.step.expert_load = expert_load(kind);
    return spec;
  }

  /// Rows of a rank's experts over the mean.
  [[nodiscard]] double expert_load(const RankKind& kind) const {
    return model_.experts > 0 ? context_.expert_load(strategy_, kind.busiest) : 1.0;
  }

  [[nodiscard]] bool unlike() const { return context_.uneven() && strategy_.ep > 1; }

  void set_groups(StepSpec& step, std::int64_t rank, std::int64_t first) const {
    const std::int64_t tp = strategy_.tp;
    const std::int64_t etp = strategy_.etp;
    const std::int64_t expert_ranks = strategy_.ep * etp;
    const Span span = context_.machine().span(strategy_.ep, static_cast<double>(etp));
    const std::int64_t group = first + (rank - first) / expert_ranks * expert_ranks + (rank - first) % etp;
    std::vector<int> replicas =
        ranks(first + (rank - first) % expert_ranks, per_stage_ / expert_ranks, expert_ranks);
    std::vector<int> dense = ranks(first + (rank - first) % tp, per_stage_ / tp, tp);
    if (strategy_.pipeline == Pipeline::dualpipe) {  // the mirrored stage holds the same weights
      const std::int64_t mirror = per_stage_ * (strategy_.pp - 1) - 2 * first;
      for (std::vector<int>* both : {&replicas, &dense}) {
        const std::size_t own = both->size();
        for (std::size_t i = 0; i < own; ++i) {
          both->push_back(static_cast<int>((*both)[i] + mirror));
        }
        std::ranges::sort(*both);
      }
    }
    // Of all ranks those that are simulated stand for all, and one more where there are more.
    std::vector<int> world;
    for (const int member : ranks(0, strategy_.pp, per_stage_)) {
      world.push_back(member);
      if (per_stage_ > 1) {
        world.push_back(static_cast<int>(member + (unlike() ? etp : 1)));
      }
    }
    step.groups = {{"world", std::move(world)},
                   {"ep", ranks(group, strategy_.ep, etp)},
                   {"expert_dp", std::move(replicas)},
                   {"ep_node", ranks(group, static_cast<std::int64_t>(span.inside[0]), etp)},
                   {"dp", std::move(dense)},
                   {"pp", ranks(rank - first, strategy_.pp, per_stage_)}};
    step.expert_parallel_stream =
        span.inside[0] < span.size ? schedule::Stream::inter : schedule::Stream::intra;
  }

  void set_plan(StepSpec& step) const {
    step.ep_plan.dispatcher = strategy_.dispatcher;
    step.ep_plan.chunking.chunks = strategy_.chunks;
    if (strategy_.recompute == Recompute::moe_act) {
      step.ep_plan.recompute = schedule::MoeRecompute::activation;
    }
    const bool alone = strategy_.chunks == 1 && !pairs_micro_batches(strategy_);
    step.ep_plan.pipeline = alone ? schedule::ChunkPipeline::none : schedule::ChunkPipeline::continuous;
    step.relays = true;
    for (const architecture::LayerKind kind : layers_) {
      step.sparse.push_back(kind == architecture::LayerKind::moe);
    }
  }

  void set_sizes(StepSpec& step) const {
    step.tokens = strategy_.micro_batch * context_.workload().seq / strategy_.cp / strategy_.tp;
    step.shared_experts = model_.shared_expert_intermediate_size > 0;
    step.experts_per_token = model_.experts_per_token;
    step.bytes = architecture::BufferBytes(model_, DType::bf16);
  }

  const CostContext& context_;
  const ModelConfig& model_;
  const Strategy& strategy_;
  std::int64_t per_stage_;
  std::vector<architecture::LayerKind> layers_;  // with those of multi-token prediction
  StepSchedules result_;
};

}  // namespace

Stages StepSchedules::layers_of_stages(const ModelConfig& model) const {
  Stages stages;
  stages.count = shape.stages;
  for (int part = 0; part < parts_of(shape); ++part) {
    for (int item = bounds[static_cast<std::size_t>(part)]; item < bounds[static_cast<std::size_t>(part) + 1];
         ++item) {
      const int layer = item - 1;
      if (layer >= 0 && layer < model.layers) {
        const bool dense = model.kind(layer) == architecture::LayerKind::dense;
        ++(dense ? stages.dense : stages.moe)[static_cast<std::size_t>(part % shape.stages)];
      }
    }
  }
  return stages;
}

std::vector<int> layer_bounds(const CostContext& context, const Strategy& strategy,
                              const PieceTimes& pieces) {
  const ModelConfig& model = context.model();
  const bool balanced = context.software().balanced_stages;
  const PieceCosts piece = piece_costs(pieces, strategy);
  std::vector<double> costs = {0.0};
  for (std::int64_t layer = 0; layer < model.layers + model.prediction_layers; ++layer) {
    const bool predicts = layer >= model.layers;
    const architecture::LayerKind kind = model.kind(layer);
    const double cost = kind == architecture::LayerKind::dense ? piece.dense : piece.moe;
    costs.push_back(balanced ? cost + (predicts ? pieces.projection.total() : 0.0) : 1.0);
  }
  costs.push_back(balanced ? (1.0 + static_cast<double>(model.prediction_layers)) * piece.head : 0.0);
  return cost::balanced_bounds(costs, strategy.pp * strategy.vpp);
}

StepSchedules build_schedules(const CostContext& context, const Strategy& strategy,
                              const PieceTimes& pieces) {
  return Builder(context, strategy, pieces).build();
}

}  // namespace expedite::plan
