#include "expedite/plan/step_cost.h"

#include <algorithm>
#include <cmath>

#include "expedite/architecture/parameter_count.h"

namespace expedite::plan {
namespace {

constexpr double kActivationBytes = 2.0;
// Adam reads gradient, master weight and two moments and writes the last three and the 16-bit weight.
constexpr double kOptimizerBytes = 30.0;

/// Of the mean stage, for one micro-batch.
struct StageWork {
  Seconds forward;
  Seconds backward;
  double weights = 0.0;
  Seconds pair;  // a forward and a backward that overlap

  void add(const LayerTimes& layer, double times, const Strategy& s) {
    forward.add(layer.forward, times);
    backward.add(layer.backward, times);
    weights += times * layer.weights;
    if (s.pipeline == Pipeline::zero_bubble_h1 || s.pipeline == Pipeline::zero_bubble_h2) {
      backward[Cause::expert] += times * (layer.uncovered_backward - layer.backward[Cause::expert]);
    }
    if (pairs_micro_batches(s)) {
      forward[Cause::expert] += times * (layer.covered_forward - layer.forward[Cause::expert]);
      backward[Cause::expert] += times * (layer.covered_backward - layer.backward[Cause::expert]);
      pair.add(layer.paired, times);
    }
  }
};

/// cost::bubble's formulas without its conditions, so that unlike stages get an estimate too.
double bubble_seconds(const Strategy& s, const StageWork& stage) {
  const double idle = s.pp - 1.0;
  const double forward = stage.forward.total();
  const double backward = stage.backward.total();
  const double weights = stage.weights;
  const double pair = stage.pair.total();
  switch (s.pipeline) {
    case Pipeline::adaptive:
      return (idle * (forward + 2.0 * backward - pair) + pair - backward +
              (s.pp - 2.0) * std::max(0.0, pair - backward - weights)) /
             s.vpp;
    case Pipeline::one_f_one_b:
      return idle * (forward + backward) / s.vpp;
    case Pipeline::zero_bubble_h1:
      return idle * std::max(0.0, forward + backward - 2.0 * weights);
    case Pipeline::zero_bubble_h2:
      return idle * std::max(0.0, forward + backward - 3.0 * weights);
    case Pipeline::dualpipe:
      return std::max(0.0, (0.5 * s.pp - 1.0) * (pair + backward - 3.0 * weights));
  }
  return 0.0;
}

/// Seconds of the slowest stage's layers, where virtual stages that hold one layer more than others make
/// their neighbours wait: half way from the stages' own pace to that of stages all of whose parts are such.
/// (Simulated, it lies between the two: tests/plan/simulated_step_test.cpp.)
double pace_of(const Strategy& s, const Stages& stages, const PieceCosts& costs, std::int64_t layers) {
  if (s.vpp == 1) {
    return stages.slowest;
  }
  const std::int64_t parts = std::int64_t{s.pp} * s.vpp;
  const auto most = static_cast<double>((layers + parts - 1) / parts);
  const double dearest = s.vpp * most * std::max(costs.dense, costs.moe);
  return std::max(stages.slowest, 0.5 * (stages.slowest + dearest));
}

/// Share of a stage's passes that have no partner, of the stage that has most pairs: cost::least_busy.
double share_alone(const Strategy& s, double micro_batches) {
  switch (s.pipeline) {
    case Pipeline::adaptive:
      return std::min(1.0, ((s.vpp - 1.0) * s.pp + 1.0) / (micro_batches * s.vpp));
    case Pipeline::dualpipe:
      return std::min(1.0, (s.pp + 1.0) / micro_batches);
    default:
      return 1.0;
  }
}

}  // namespace

PieceTimes piece_times(const CostContext& context, const Strategy& strategy) {
  const ModelConfig& model = context.model();
  PieceTimes pieces;
  if (model.count(architecture::LayerKind::dense) > 0) {
    pieces.dense = layer_times(context, strategy, architecture::LayerKind::dense);
  }
  if (model.count(architecture::LayerKind::moe) > 0) {
    pieces.moe = layer_times(context, strategy, architecture::LayerKind::moe);
  }
  pieces.head = layer_times(head_operation(context, strategy));
  if (model.prediction_layers > 0) {
    pieces.prediction =
        model.kind(model.layers - 1) == architecture::LayerKind::moe ? pieces.moe : pieces.dense;
    pieces.projection = layer_times(prediction_operation(context, strategy));
    for (const LayerTimes& part : {pieces.projection, pieces.head}) {
      pieces.prediction.forward.add(part.forward);
      pieces.prediction.backward.add(part.backward);
      pieces.prediction.weights += part.weights;
      pieces.prediction.paired.add(part.paired);
    }
  }
  return pieces;
}

PieceCosts piece_costs(const PieceTimes& pieces, const Strategy& strategy) {
  const auto cost = [&](const LayerTimes& times) {
    return pairs_micro_batches(strategy) ? times.paired.total() : times.total();
  };
  return {.dense = cost(pieces.dense),
          .moe = cost(pieces.moe),
          .head = cost(pieces.head),
          .prediction = cost(pieces.prediction)};
}

ReplicaSeconds replica_gather_seconds(const CostContext& context, const Strategy& s,
                                      const ParameterBytes& parameters, double bytes_per_parameter) {
  const Machine& machine = context.reached();
  const Span dense = machine.span(static_cast<double>(s.dp) * s.cp, s.tp);
  const double expert_ranks = static_cast<double>(s.ep) * s.etp;
  const Span expert = machine.span(static_cast<double>(s.tp) * s.cp * s.dp / expert_ranks, expert_ranks);
  return {.dense = gather_seconds(machine, dense, parameters.dense * bytes_per_parameter),
          .experts = gather_seconds(machine, expert, parameters.experts * bytes_per_parameter)};
}

double reduced_bytes(const CostContext& context, const Strategy& s) {
  return context.software().gradient_bytes * (s.zero == 0 ? 2.0 : 1.0);
}

double optimizer_seconds(const CostContext& context, const Strategy& s, const ParameterBytes& parameters) {
  const double shards = s.zero == 0 ? 1.0 : static_cast<double>(s.dp) * s.cp;
  const double expert_shards =
      s.zero == 0 ? 1.0 : static_cast<double>(s.tp) * s.cp * s.dp / (static_cast<double>(s.ep) * s.etp);
  return kOptimizerBytes * (parameters.dense / shards + parameters.experts / expert_shards) /
         context.memory_bandwidth();
}

double message_bytes(const CostContext& context, const Strategy& s) {
  return kActivationBytes * static_cast<double>(s.micro_batch) * static_cast<double>(context.workload().seq) /
         s.cp / s.tp * static_cast<double>(context.model().hidden_size);
}

double message_seconds(const CostContext& context, const Strategy& s, double bytes) {
  const Machine& machine = context.reached();
  const double gather =
      s.sequence_parallel ? 0.0 : gather_seconds(machine, machine.span(s.tp, 1.0), s.tp * bytes);
  return send_seconds(machine, static_cast<double>(s.tp) * s.cp * s.dp, bytes) + gather;
}

double model_flops(const ModelConfig& model, const Workload& workload) {
  const double tokens = static_cast<double>(workload.global_batch) * static_cast<double>(workload.seq);
  const auto embedding = static_cast<double>(embedding_parameters(model));
  // A tied embedding is the head's matrix too.
  const double products = static_cast<double>(active_parameters(model, true)) -
                          (model.tie_word_embeddings ? 0.0 : embedding) +
                          static_cast<double>(model.prediction_layers * model.hidden_size * model.vocab_size);
  const double windowed = static_cast<double>(model.windowed_layers());
  const double seq = static_cast<double>(workload.seq);
  const double attended =
      windowed * std::min(static_cast<double>(model.sliding_window), 0.5 * seq) +
      (static_cast<double>(model.layers + model.prediction_layers) - windowed) * 0.5 * seq;
  const double attention =
      attended * static_cast<double>(model.heads) * static_cast<double>(model.head_dim + model.value_dim);
  return 6.0 * tokens * (products + attention);
}

StepCoster::StepCoster(const CostContext& context)
    : context_(context),
      runs_(layer_runs(context.model())),
      memory_(context),
      flops_(model_flops(context.model(), context.workload())) {}

double StepCoster::gradient_seconds(const Strategy& s, const ParameterBytes& parameters,
                                    double work_of_micro_batch, double micro_batches) const {
  const double gradient = context_.software().gradient_bytes;
  const auto once = [&](double bytes_per_parameter) {
    return replica_gather_seconds(context_, s, parameters, bytes_per_parameter).total();
  };
  // Sharded, weights are gathered when they have been updated.
  double seconds = once(reduced_bytes(context_, s) + (s.zero == 0 ? 0.0 : kWeightBytes));
  double cover = work_of_micro_batch;
  if (s.zero == 2) {
    // Nobody keeps whole gradients: every micro-batch's are reduced.
    seconds = micro_batches * once(gradient) + once(kWeightBytes);
    cover = micro_batches * work_of_micro_batch;
  }
  if (s.zero == 3) {
    // And nobody keeps whole weights: they are gathered for forward and again for backward.
    seconds = micro_batches * (2.0 * once(kWeightBytes) + once(gradient));
    cover = micro_batches * work_of_micro_batch;
  }
  return std::max(context_.eff(Constant::gradient_exposed) * seconds, seconds - cover);
}

StepCost StepCoster::cost(const Strategy& s, const PieceTimes& pieces) const {
  const Workload& workload = context_.workload();
  const double micro_batches = static_cast<double>(workload.global_batch) / s.dp / s.micro_batch;
  const PieceCosts costs = piece_costs(pieces, s);
  const std::int64_t mtp_layers = context_.model().prediction_layers;
  Stages stages;
  place_layers(runs_, mtp_layers, costs, s.pp, context_.software().balanced_stages, stages);

  // The mean stage for the bubble, the slowest for the steady state: its work in the mean's proportions.
  const double dense_layers =
      static_cast<double>(context_.model().count(architecture::LayerKind::dense)) / s.pp;
  const double moe_layers = static_cast<double>(context_.model().count(architecture::LayerKind::moe)) / s.pp;
  StageWork stage;
  double wire = 0.0;
  const auto add = [&](const LayerTimes& layer, double times) {
    stage.add(layer, times, s);
    wire += times * layer.expert_wire;
  };
  add(pieces.dense, dense_layers);
  add(pieces.moe, moe_layers);
  add(pieces.head, 1.0 / s.pp);
  add(pieces.prediction, static_cast<double>(mtp_layers) / s.pp);
  const double slowness =
      stages.mean > 0.0 ? pace_of(s, stages, costs, context_.model().layers + mtp_layers) / stages.mean : 1.0;

  StepCost result;
  StepSeconds& seconds = result.seconds;
  const double alone = share_alone(s, micro_batches);
  seconds.work.add(stage.forward, alone * micro_batches * slowness);
  seconds.work.add(stage.backward, alone * micro_batches * slowness);
  seconds.work.add(stage.pair, (1.0 - alone) * micro_batches * slowness);
  seconds.expert_wire = wire * micro_batches * slowness;
  if (s.pp > 1) {
    // A micro-batch passes the slowest stage within its work, and the others besides.
    const double others = std::max(0.0, s.pp - slowness) / (s.pp - 1.0);
    seconds.bubble = others * bubble_seconds(s, stage);
    const double send = message_seconds(context_, s, message_bytes(context_, s));
    const double steady = 2.0 * micro_batches * s.vpp * context_.eff(Constant::pipeline_exposed);
    seconds.sends = send * (steady + 2.0 * (s.pp - 1.0));
  }
  const ParameterBytes parameters = memory_.parameters(s, stages);
  seconds.gradients = gradient_seconds(s, parameters, seconds.work.total() / micro_batches, micro_batches);
  seconds.optimizer = optimizer_seconds(context_, s, parameters);
  const double rest =
      seconds.work.total() + seconds.bubble + seconds.sends + seconds.gradients + seconds.optimizer;
  seconds.overhead = std::min(context_.eff(Constant::step_overhead), kMostOverhead * rest);
  seconds.total = rest + seconds.overhead;

  result.memory = memory_.peak(s, stages);
  const double tokens = static_cast<double>(workload.global_batch) * static_cast<double>(workload.seq);
  const auto devices = static_cast<double>(s.devices());
  result.tokens_per_s_per_device = tokens / seconds.total / devices;
  result.mfu = flops_ / seconds.total / devices / context_.machine().peak_of(context_.precision());
  return result;
}

}  // namespace expedite::plan
