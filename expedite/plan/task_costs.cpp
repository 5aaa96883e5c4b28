#include "expedite/plan/task_costs.h"

#include <algorithm>
#include <cmath>

namespace expedite::plan {
namespace {

using schedule::Op;
using schedule::Pass;
using schedule::Task;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

/// With the host's part, which is spread over what it runs beside.
Seconds with_host(Seconds seconds, double share) {
  seconds[Cause::host] += share * seconds.total();
  return seconds;
}

Operation operation_of(Op op) {
  switch (op) {
    case Op::dense_mlp:
      return Operation::mlp;
    case Op::router:
      return Operation::router;
    case Op::shared_experts:
      return Operation::shared_experts;
    case Op::experts:
      return Operation::experts;
    case Op::permute:
    case Op::unpermute:
      return Operation::rows;
    default:
      return Operation::attention;
  }
}

}  // namespace

const Seconds& TaskCosts::Passes::of(Pass pass) const {
  switch (pass) {
    case Pass::recompute:
      return recompute;
    case Pass::input_grad:
      return input_grad;
    case Pass::weight_grad:
      return weight_grad;
    default:
      return forward;
  }
}

TaskCosts::TaskCosts(const CostContext& context, const Strategy& strategy, const StepSchedules& schedules)
    : context_(context),
      strategy_(strategy),
      schedules_(schedules),
      memory_(context),
      layers_(static_cast<int>(context.model().layers + context.model().prediction_layers)),
      message_bytes_(plan::message_bytes(context, strategy)),
      overhead_(StepCoster(context).cost(strategy).seconds.overhead) {
  Strategy whole = strategy;
  whole.chunks = 1;
  for (const architecture::LayerKind kind : {architecture::LayerKind::dense, architecture::LayerKind::moe}) {
    if (context.model().count(kind) > 0) {
      for (const bool busiest : {false, true}) {
        costs_[static_cast<std::size_t>(kind)][busiest ? 1 : 0] = {passes_of(strategy, kind, busiest),
                                                                   passes_of(whole, kind, busiest)};
      }
    }
  }
  const OperationTimes head = head_operation(context, strategy);
  const auto heads = static_cast<double>(1 + context.model().prediction_layers);
  for (const Seconds& pass : {head.forward, head.input_grad, head.weight_grad}) {
    head_.forward.add(pass, heads);
  }
  const OperationTimes projection = prediction_operation(context, strategy);
  projection_.forward = projection.forward;
  projection_.input_grad = projection.input_grad;
  projection_.input_grad.add(projection.weight_grad);
}

TaskCosts::LayerPasses TaskCosts::passes_of(const Strategy& strategy, architecture::LayerKind kind,
                                            bool busiest) const {
  const LayerOperations layer = layer_operations(context_, strategy, kind, busiest);
  double forward = 0.0;
  double backward = 0.0;
  for (const OperationTimes& operation : layer.times) {
    forward += operation.forward.total();
    backward += operation.input_grad.total() + layer.recomputed * operation.forward.total();
  }
  const double forward_share = layer.host_forward / forward;
  const double backward_share = layer.host_backward / backward;
  LayerPasses passes;
  for (std::size_t i = 0; i < kOperations; ++i) {
    const OperationTimes& operation = layer.times[i];
    passes.of[i] = {.forward = with_host(operation.forward, forward_share),
                    .recompute = with_host(operation.forward, backward_share),
                    .input_grad = with_host(operation.input_grad, backward_share),
                    .weight_grad = operation.weight_grad};
  }
  if (strategy.recompute == Recompute::moe_act) {  // counted with the input gradients
    passes.of[static_cast<std::size_t>(Operation::experts)].recompute = {};
  }
  // The router's weight gradients are tiny and part of its input gradients.
  Passes& router = passes.of[static_cast<std::size_t>(Operation::router)];
  router.input_grad.add(router.weight_grad);
  passes.exchange = layer.exchange;
  // Where nothing is to run under an exchange, it takes what the software leaves exposed of it.
  const double one_way = layer.exchange.total(1.0);
  if (strategy.chunks == 1 && one_way > 0.0 && !pairs_micro_batches(strategy)) {
    const double exposed = 0.5 * layer.exposed_forward / one_way;
    passes.exchange = {.between = exposed * layer.exchange.between,
                       .within = exposed * layer.exchange.within};
  }
  return passes;
}

const TaskCosts::LayerCosts& TaskCosts::layer(const Task& task, bool busiest) const {
  return costs_[static_cast<std::size_t>(context_.model().kind(task.layer))][busiest ? 1 : 0];
}

Seconds TaskCosts::work_of(const Task& task, bool busiest) const {
  Seconds seconds;
  switch (task.op) {
    case Op::attention:
    case Op::dense_mlp:
    case Op::router:
    case Op::shared_experts:
    case Op::experts:
    case Op::permute:
    case Op::unpermute: {
      const bool of_chunk = task.chunk >= 0;
      const LayerCosts& costs = layer(task, busiest);
      const auto operation = static_cast<std::size_t>(operation_of(task.op));
      double share = 1.0;
      if (task.op == Op::shared_experts) {
        share = of_chunk ? 0.5 : 1.0;  // of the layer's tokens, whatever its chunks
      } else if (of_chunk) {
        share = static_cast<double>(task.chunks) / strategy_.chunks;
      }
      // Rows are put into order and back; with one rank, straight back.
      if (operation == static_cast<std::size_t>(Operation::rows) && strategy_.ep > 1) {
        share *= 0.5;
      }
      // Only pairs keep layers whole.
      const bool cut = of_chunk || !pairs_micro_batches(strategy_);
      seconds.add((cut ? costs.chunked : costs.whole).of[operation].of(task.pass), share);
      return seconds;
    }
    case Op::mtp_projection:
      return projection_.of(task.pass);
    case Op::loss:
      return head_.forward;
    case Op::gradient_norm:
      seconds[Cause::host] = overhead_;
      return seconds;
    case Op::optimizer:
      seconds[Cause::memory] = optimizer_seconds(context_, strategy_, parameters_of(task.layer));
      return seconds;
    default:
      return seconds;
  }
}

cost::TaskCost TaskCosts::of(const Task& task, bool busiest) const {
  constexpr int kInside = 0;
  constexpr int kBetween = 1;
  switch (task.op) {
    case Op::dispatch:
    case Op::combine:
      return {.seconds = exchange_seconds(task),
              .link = task.stream == schedule::Stream::inter ? kBetween : kInside};
    case Op::send:
    case Op::receive: {
      const double bytes = message_bytes(task);
      return {.seconds = message_seconds(context_, strategy_, bytes),
              .bytes = std::llround(bytes),
              .link = kBetween};
    }
    case Op::reduce_dense:
    case Op::reduce_experts:
      return {.seconds = reduce_seconds(task), .link = kBetween};
    case Op::gather_weights:
      return {.seconds = gather_weights_seconds(task), .link = kBetween};
    default:
      return {.seconds = work_of(task, busiest).total()};
  }
}

double TaskCosts::exchange_seconds(const Task& task) const {
  const LayerCosts& costs = layer(task, true);  // the busiest sets the pace
  const bool of_chunk = task.chunk >= 0;
  const ExchangeTimes& exchange = (of_chunk ? costs.chunked : costs.whole).exchange;
  const double share = of_chunk ? static_cast<double>(task.chunks) / strategy_.chunks : 1.0;
  if (exchange.between > 0.0 && exchange.within > 0.0) {
    return share * (task.stream == schedule::Stream::inter ? exchange.between : exchange.within);
  }
  return share * (exchange.between + exchange.within);
}

/// Layer -1 is the embedding, and the one after the last is the head.
ParameterBytes TaskCosts::parameters_of(int layer) const {
  if (layer < 0) {
    return memory_.embedding_parameters(strategy_);
  }
  if (layer == layers_) {
    const bool tied = context_.model().tie_word_embeddings && strategy_.pp == 1;
    return tied ? ParameterBytes{} : memory_.head_parameters(strategy_);
  }
  const ModelConfig& model = context_.model();
  const bool predicts = layer >= model.layers;
  ParameterBytes parameters = memory_.layer_parameters(strategy_, model.kind(layer));
  if (predicts) {
    parameters.dense += memory_.projection_parameters(strategy_).dense;
  }
  return parameters;
}

double TaskCosts::reduce_seconds(const Task& task) const {
  const ReplicaSeconds seconds = replica_gather_seconds(context_, strategy_, parameters_of(task.layer),
                                                        reduced_bytes(context_, strategy_));
  return task.op == Op::reduce_experts ? seconds.experts : seconds.dense;
}

double TaskCosts::gather_weights_seconds(const Task& task) const {
  const ReplicaSeconds seconds =
      replica_gather_seconds(context_, strategy_, parameters_of(task.layer), kWeightBytes);
  return task.communication->group == schedule::kExpertDataParallelGroup ? seconds.experts : seconds.dense;
}

/// Past a layer of multi-token prediction the main model's activations travel along.
double TaskCosts::message_bytes(const Task& task) const {
  const int part = task.chunk + (task.pass == Pass::input_grad ? 1 : 0);
  const int layer = schedules_.bounds[at(part)] - 1;
  return message_bytes_ * (layer > context_.model().layers ? 2.0 : 1.0);
}

Memory TaskCosts::held(const RankKind& kind) const {
  ParameterBytes sum;
  const auto add = [&](const ParameterBytes& parameters) {
    sum.dense += parameters.dense;
    sum.experts += parameters.experts;
  };
  const ModelConfig& model = context_.model();
  bool has_head = false;
  const schedule::PipelineShape& shape = schedules_.shape;
  for (int virtual_stage = 0; virtual_stage < virtual_stages_of(shape); ++virtual_stage) {
    const int part = part_at(shape, kind.stage, virtual_stage);
    const int begin = schedules_.bounds[at(part)] - 1;
    const int end = schedules_.bounds[at(part) + 1] - 1;
    for (int layer = begin; layer < end; ++layer) {
      add(parameters_of(layer));
    }
    const bool predicts = std::max(begin, static_cast<int>(model.layers)) < std::min(end, layers_);
    if (predicts && begin >= 0) {
      add(memory_.embedding_parameters(strategy_));  // prediction embeds the next token
    }
    has_head = has_head || end > layers_;
  }
  Memory held = memory_.held(strategy_, sum);
  held.logits = has_head ? memory_.logits(strategy_) : 0.0;
  return held;
}

}  // namespace expedite::plan
