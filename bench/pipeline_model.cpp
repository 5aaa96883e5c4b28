#include "bench/pipeline_model.h"

#include <algorithm>
#include <chrono>

#include "expedite/architecture/buffer_bytes.h"
#include "expedite/cost/layer_balance.h"

namespace expedite::bench {
namespace {

using schedule::Op;
using schedule::Pass;
using schedule::PipelineKind;
using schedule::Stream;
using schedule::Task;

/// Milliseconds of a micro-batch in one layer, in the proportions of an MoE model of several hundred billion
/// parameters with latent attention at 8K tokens: attention, whose backward computes scores again, takes a
/// little more than the experts, one of which is shared.
double compute_milliseconds(Op op, Pass pass) {
  struct Row {
    Op op;
    double forward, input_grad, weight_grad, update;
  };
  static constexpr Row kRows[] = {
      {Op::embedding, 0.2, 0.0, 0.2, 0.0},      {Op::attention, 2.0, 2.6, 1.0, 0.0},
      {Op::dense_mlp, 1.9, 1.9, 1.9, 0.0},      {Op::router, 0.1, 0.1, 0.0, 0.0},
      {Op::shared_experts, 0.3, 0.3, 0.3, 0.0}, {Op::permute, 0.15, 0.15, 0.0, 0.0},
      {Op::experts, 1.6, 1.6, 1.6, 0.0},        {Op::unpermute, 0.15, 0.15, 0.0, 0.0},
      {Op::mtp_projection, 0.3, 0.6, 0.0, 0.0}, {Op::loss, 6.0, 0.0, 0.0, 0.0},
      {Op::gradient_norm, 0.0, 0.0, 0.0, 1.0},  {Op::optimizer, 0.0, 0.0, 0.0, 2.0}};
  for (const Row& row : kRows) {
    if (row.op == op) {
      switch (pass) {
        case Pass::forward:
        case Pass::recompute:
          return row.forward;
        case Pass::input_grad:
          return row.input_grad;
        case Pass::weight_grad:
          return row.weight_grad;
        case Pass::update:
          return row.update;
      }
    }
  }
  return 0.0;
}

/// Of all passes of a sparse layer.
double moe_layer_milliseconds() {
  double sum = 0.0;
  for (const Op op :
       {Op::attention, Op::router, Op::shared_experts, Op::permute, Op::experts, Op::unpermute}) {
    for (const Pass pass : {Pass::forward, Pass::input_grad, Pass::weight_grad}) {
      sum += compute_milliseconds(op, pass);
    }
  }
  return sum;
}

/// `count` ranks, `stride` apart.
std::vector<int> ranks(int first, int count, int stride = 1) {
  std::vector<int> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(first + i * stride);
  }
  return all;
}

}  // namespace

SimulatedPipeline::SimulatedPipeline(const PipelineModel& model, PipelineKind kind) : model_(model) {
  const bool interleaves = kind == PipelineKind::interleaved || kind == PipelineKind::adaptive_pipe;
  shape_ = {kind, model.stages, interleaves ? model.virtual_stages : 1, model.micro_batches};
  for (int layer = 0; layer < model.layers + model.mtp_layers; ++layer) {
    sparse_.push_back(layer >= model.dense_layers);
  }
  // There are four exchanges, forward and backward.
  exchange_ = 1e-3 * moe_layer_milliseconds() / model.compute_to_communication / 4.0;
  bounds_ = cost::balanced_bounds(item_costs(), parts_of(shape_));
  const auto begin = std::chrono::steady_clock::now();
  for (int stage = 0; stage < model.stages; ++stage) {
    schedules_.push_back(build_pipeline_step(spec_of(stage)));
  }
  build_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<double> SimulatedPipeline::item_costs() const {
  const auto all_passes = [](Op op) {
    return compute_milliseconds(op, Pass::forward) + compute_milliseconds(op, Pass::input_grad) +
           compute_milliseconds(op, Pass::weight_grad);
  };
  std::vector<double> costs = {all_passes(Op::embedding)};
  for (std::size_t layer = 0; layer < sparse_.size(); ++layer) {
    const bool predicts_more = static_cast<int>(layer) >= model_.layers;
    costs.push_back(
        (sparse_[layer] ? moe_layer_milliseconds() : all_passes(Op::attention) + all_passes(Op::dense_mlp)) +
        (predicts_more ? all_passes(Op::mtp_projection) : 0.0));
  }
  costs.push_back(all_passes(Op::loss));
  return costs;
}

schedule::PipelineSpec SimulatedPipeline::spec_of(int stage) const {
  const int ep = model_.expert_parallel_size;
  const int per_stage = ep * model_.replicas;
  const int first = stage * per_stage;
  const int node = std::min(model_.ranks_per_node, ep);
  std::vector<int> replicas = ranks(first, model_.replicas, ep);
  std::vector<int> all = ranks(first, per_stage);
  if (shape_.kind == PipelineKind::dualpipe) {  // the mirrored stage holds the same weights
    const int mirror = (shape_.stages - 1 - stage) * per_stage;
    for (const int rank : ranks(mirror, model_.replicas, ep)) {
      replicas.push_back(rank);
    }
    for (const int rank : ranks(mirror, per_stage)) {
      all.push_back(rank);
    }
    std::ranges::sort(replicas);
    std::ranges::sort(all);
  }
  schedule::PipelineSpec spec;
  spec.shape = shape_;
  spec.stage = stage;
  spec.step.rank = first;
  spec.step.groups = {{"world", ranks(0, per_stage * shape_.stages)},
                      {"ep", ranks(first, ep)},
                      {"expert_dp", std::move(replicas)},
                      {"ep_node", ranks(first, node)},
                      {"dp", std::move(all)},
                      {"pp", ranks(0, shape_.stages, per_stage)}};
  spec.step.expert_parallel_stream = node < ep ? Stream::inter : Stream::intra;
  spec.step.ep_plan.dispatcher = schedule::Dispatcher::hierarchical_dedup;
  spec.step.ep_plan.chunking.chunks = model_.chunks;
  spec.step.relays = true;
  spec.step.sparse = sparse_;
  spec.step.tokens = 1024;  // 8192 on 8 ranks of tensor and sequence parallelism
  const ModelConfig& model = *architecture::find_builtin_model("pangu-ultra-moe-718b");
  spec.step.shared_experts = true;
  spec.step.experts_per_token = model.experts_per_token;
  spec.step.bytes = architecture::BufferBytes(model, DType::bf16);
  spec.mtp_layers = model_.mtp_layers;
  spec.bounds = bounds_;
  spec.recompute = model_.recompute;
  return spec;
}

/// Of a layer's tokens, what the task is for.
double SimulatedPipeline::share_of(const Task& task) const {
  if (task.chunk < 0) {
    return 1.0;
  }
  switch (task.op) {
    case Op::shared_experts:
      return 0.5;
    case Op::permute:
    case Op::dispatch:
    case Op::experts:
    case Op::combine:
    case Op::unpermute:
      return static_cast<double>(task.chunks) / model_.chunks;
    default:
      return 1.0;
  }
}

cost::TaskCost SimulatedPipeline::cost_of(const Task& task) const {
  const bool two_levels = model_.ranks_per_node < model_.expert_parallel_size;
  switch (task.op) {
    case Op::dispatch:
    case Op::combine: {
      const double share = !two_levels ? 1.0 : task.stream == Stream::inter ? 0.7 : 0.3;
      return {.seconds = share * share_of(task) * exchange_, .link = task.stream == Stream::inter ? 1 : 0};
    }
    case Op::metadata:
    case Op::statistics:
      return {.seconds = 20e-6, .link = 1};
    case Op::send:
    case Op::receive:
      return {.seconds = 0.6e-3, .link = 1};
    case Op::reduce_dense:
      return {.seconds = 5e-3, .link = 1};
    case Op::reduce_experts:
      return {.seconds = 10e-3, .link = 1};
    default:
      return {.seconds = 1e-3 * share_of(task) * compute_milliseconds(task.op, task.pass)};
  }
}

cost::Simulation SimulatedPipeline::simulate(const cost::SimulationOptions& options) const {
  std::vector<cost::RankClass> classes;
  for (const schedule::Schedule& schedule : schedules_) {
    classes.push_back({&schedule, model_.expert_parallel_size * model_.replicas});
  }
  return cost::simulate(
      classes, [this](const schedule::Schedule&, const Task& task) { return cost_of(task); }, options);
}

}  // namespace expedite::bench
