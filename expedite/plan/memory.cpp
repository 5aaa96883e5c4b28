#include "expedite/plan/memory.h"

#include <algorithm>
#include <utility>

namespace expedite::plan {
namespace {

constexpr double kWeight = 2.0;
constexpr double kGradient = 4.0;
constexpr double kOptimizer = 12.0;  // master weight and two moments
constexpr double kActivation = 2.0;

}  // namespace

MemoryModel::MemoryModel(const CostContext& context) : context_(context) {
  const Transformer& model = context.model();
  attention_parameters_ = static_cast<double>(attention_parameters(model) + 2 * model.hidden);
  dense_mlp_parameters_ = static_cast<double>(mlp_parameters(model, model.ffn));
  expert_parameters_ = static_cast<double>(model.experts * mlp_parameters(model, model.moe_ffn));
  moe_shared_parameters_ = static_cast<double>(
      model.hidden * model.experts + (model.shared_ffn > 0 ? mlp_parameters(model, model.shared_ffn) : 0));
  embedding_ = static_cast<double>(plan::embedding_parameters(model));
  head_ = static_cast<double>(model.hidden * model.vocab);
  prediction_ = 2.0 * static_cast<double>(model.hidden * model.hidden);
}

ParameterBytes MemoryModel::layer_parameters(const Strategy& s, LayerKind kind) const {
  const double shared =
      attention_parameters_ + (kind == LayerKind::dense ? dense_mlp_parameters_ : moe_shared_parameters_);
  return {
      .dense = shared / s.tp,
      .experts = kind == LayerKind::dense ? 0.0 : expert_parameters_ / (static_cast<double>(s.ep) * s.etp)};
}

ParameterBytes MemoryModel::projection_parameters(const Strategy& s) const {
  return {.dense = prediction_ / s.tp};
}

ParameterBytes MemoryModel::embedding_parameters(const Strategy& s) const {
  return {.dense = embedding_ / s.tp};
}

ParameterBytes MemoryModel::head_parameters(const Strategy& s) const {
  return {.dense = head_ / s.tp};
}

ParameterBytes MemoryModel::stage_parameters(const Strategy& s, const Stages& stages, int stage) const {
  const Transformer& model = context_.model();
  const bool last = stage == stages.count - 1;
  const double mtp = last ? static_cast<double>(model.mtp_layers) : 0.0;
  const bool mtp_moe = model.layers.back() == LayerKind::moe;
  const double dense_layers = stages.dense[stage] + (mtp_moe ? 0.0 : mtp);
  const double moe_layers = stages.moe[stage] + (mtp_moe ? mtp : 0.0);
  double shared = (dense_layers + moe_layers) * attention_parameters_ + dense_layers * dense_mlp_parameters_ +
                  moe_layers * moe_shared_parameters_ + mtp * prediction_;
  // A tied embedding is held by the first and by the last stage. A prediction layer needs it again.
  if (stage == 0 || (last && mtp > 0.0)) {
    shared += embedding_;
  }
  if (last && (!model.tied_embeddings || stages.count > 1)) {
    shared += head_;
  }
  ParameterBytes parameters{.dense = shared / s.tp,
                            .experts = moe_layers * expert_parameters_ / (static_cast<double>(s.ep) * s.etp)};
  if (s.pipeline == Pipeline::dualpipe) {
    parameters.dense *= 2.0;
    parameters.experts *= 2.0;
  }
  return parameters;
}

ParameterBytes MemoryModel::parameters(const Strategy& s, const Stages& stages) const {
  ParameterBytes most;
  for (int stage = 0; stage < stages.count; ++stage) {
    const ParameterBytes here = stage_parameters(s, stages, stage);
    if (here.dense + here.experts > most.dense + most.experts) {
      most = here;
    }
  }
  return most;
}

double micro_batches_in_flight(const Strategy& s, int stage, double micro_batches) {
  const double behind = s.pp - 1.0 - stage;
  double in_flight = 1.0 + behind;
  switch (s.pipeline) {
    case Pipeline::one_f_one_b:
    case Pipeline::zero_bubble_h1:
      if (s.vpp > 1) {
        in_flight = ((s.vpp - 1.0) * s.pp + 2.0 * behind + 1.0) / s.vpp;
      }
      break;
    case Pipeline::zero_bubble_h2:
      in_flight = 2.0 * s.pp - 1.0;
      break;
    case Pipeline::dualpipe:
      in_flight = s.pp + 1.0;
      break;
    case Pipeline::adaptive:
      // One more of warm-up, so that a forward and a backward of different micro-batches meet.
      in_flight = ((s.vpp - 1.0) * s.pp + 2.0 * behind + 2.0) / s.vpp;
      break;
  }
  return std::min(in_flight, micro_batches);
}

Memory MemoryModel::held(const Strategy& s, const ParameterBytes& parameters) const {
  const double shards = static_cast<double>(s.dp) * s.cp;
  const double expert_shards = static_cast<double>(s.tp) * s.cp * s.dp / (static_cast<double>(s.ep) * s.etp);
  const auto bytes = [&](double per_parameter, bool sharded) {
    return per_parameter * (parameters.dense / (sharded ? shards : 1.0) +
                            parameters.experts / (sharded ? expert_shards : 1.0));
  };
  return {.weights = bytes(kWeight, s.zero >= 3),
          .gradients = bytes(kGradient, s.zero >= 2),
          .optimizer = bytes(kOptimizer, s.zero >= 1)};
}

double MemoryModel::logits(const Strategy& s) const {
  const double tokens =
      static_cast<double>(s.micro_batch) * static_cast<double>(context_.workload().seq) / s.cp;
  return tokens * static_cast<double>(context_.model().vocab) / s.tp * 6.0;
}

Memory MemoryModel::of_stage(const Strategy& s, const Stages& stages, int stage) const {
  const Transformer& model = context_.model();
  const ParameterBytes parameters = stage_parameters(s, stages, stage);
  Memory memory = held(s, parameters);

  const double tp = s.tp;
  const double tokens =
      static_cast<double>(s.micro_batch) * static_cast<double>(context_.workload().seq) / s.cp;
  const double own = tokens / tp;
  const double shared = s.sequence_parallel ? own : tokens;
  const auto hidden = static_cast<double>(model.hidden);
  const auto heads = static_cast<double>(model.heads);
  // Both norms' inputs and outputs, and attention's input, which is the first norm's output. Dropout of
  // unfused software keeps two masks of a byte.
  double attention = kActivation * 4.0 * shared * hidden;
  const double qk = static_cast<double>(model.qk_dim());
  const double v = static_cast<double>(model.v_dim());
  attention += kActivation * own * (heads * (qk + v) + static_cast<double>(model.kv_heads) * (qk + v));
  if (model.attention == AttentionKind::latent) {
    attention += kActivation * 2.0 * shared * static_cast<double>(model.q_lora_rank + model.kv_lora_rank);
  }
  if (!context_.software().fused_attention) {
    const double score_bytes = s.recompute == Recompute::selective ? 0.0 : 5.0;
    attention +=
        2.0 * shared * hidden + score_bytes * own * heads * static_cast<double>(context_.workload().seq);
  }
  const double up = model.mlp == MlpKind::gated ? 2.0 : 1.0;
  const double dense_mlp = kActivation * (up + 1.0) * own * static_cast<double>(model.ffn);
  double moe = 0.0;
  double rows = 0.0;
  if (model.experts > 0) {
    rows = own * static_cast<double>(model.topk) * context_.reach(s.ep, s.etp, own).busiest;
    const double inner = s.recompute == Recompute::moe_act ? up : up + 1.0;
    moe = kActivation * rows * (2.0 * hidden + inner * static_cast<double>(model.moe_ffn)) +
          kActivation * (up + 1.0) * own * static_cast<double>(model.shared_ffn) +
          4.0 * own * static_cast<double>(model.experts);
  }
  const double micro_batches = static_cast<double>(context_.workload().global_batch) / s.dp / s.micro_batch;
  const double in_flight = micro_batches_in_flight(s, stage, micro_batches);
  const bool last = stage == stages.count - 1;
  const double mtp = last ? static_cast<double>(model.mtp_layers) : 0.0;
  const double dense_layers = stages.dense[stage];
  const double moe_layers = stages.moe[stage] + mtp;
  // A recomputed layer keeps its input only, and one layer at a time is whole.
  const double whole = s.recompute == Recompute::full ? 0.0 : s.recompute == Recompute::half ? 0.5 : 1.0;
  const double input = kActivation * shared * hidden;
  const double kept = dense_layers * (attention + dense_mlp) + moe_layers * attention;
  const double layers = dense_layers + moe_layers;
  const double scale = context_.eff(Constant::activations);
  memory.activations = scale * in_flight * (whole * kept + (1.0 - whole) * layers * input);
  memory.expert_activations = scale * in_flight * whole * moe_layers * moe;
  if (whole < 1.0) {
    memory.activations += scale * (attention + (dense_layers > 0 ? dense_mlp : 0.0));
    memory.expert_activations += scale * (moe_layers > 0 ? moe : 0.0);
  }
  if (s.recompute == Recompute::moe_act && moe_layers > 0) {
    memory.expert_activations += scale * kActivation * rows * static_cast<double>(model.moe_ffn) / s.chunks;
  }
  // A chunk's rows on their way out and back.
  memory.communication = s.ep > 1 ? 2.0 * kActivation * rows * hidden / s.chunks : 0.0;
  if (s.zero == 3) {
    // Two layers' weights whole: the one at work and the next.
    memory.communication += 2.0 * kWeight * (parameters.dense + parameters.experts) / std::max(1.0, layers);
  }
  if (last) {
    memory.logits = logits(s);
  }
  return memory;
}

Memory MemoryModel::peak(const Strategy& s, const Stages& stages) const {
  Memory most;
  // Activations fall from stage to stage and the ends hold embedding and head, so that the fullest stage is
  // the first, the last, or the first of those with the most layers.
  int fullest = 0;
  const auto layers = [&](int stage) { return std::pair(stages.moe[stage], stages.dense[stage]); };
  for (int stage = 1; stage < stages.count; ++stage) {
    if (layers(stage) > layers(fullest)) {
      fullest = stage;
    }
  }
  for (const int stage : {0, fullest, stages.count - 1}) {
    const Memory here = of_stage(s, stages, stage);
    if (here.total() > most.total()) {
      most = here;
    }
  }
  most.allocator = most.total() * std::max(0.0, context_.eff(Constant::allocator) - 1.0);
  return most;
}

}  // namespace expedite::plan
