#include "expedite/plan/memory.h"

#include <algorithm>
#include <utility>

#include "expedite/architecture/parameter_count.h"

namespace expedite::plan {
namespace {

constexpr double kWeight = 2.0;
constexpr double kGradient = 4.0;
constexpr double kOptimizer = 12.0;  // master weight and two moments
constexpr double kActivation = 2.0;

}  // namespace

MemoryModel::MemoryModel(const CostContext& context) : context_(context) {
  const ModelConfig& model = context.model();
  attention_parameters_ = static_cast<double>(attention_parameters(model) + 2 * model.hidden_size);
  dense_mlp_parameters_ = static_cast<double>(mlp_parameters(model, model.intermediate_size));
  expert_parameters_ =
      static_cast<double>(model.experts * mlp_parameters(model, model.moe_intermediate_size));
  moe_shared_parameters_ = static_cast<double>(
      model.hidden_size * model.experts + (model.shared_expert_intermediate_size > 0
                                               ? mlp_parameters(model, model.shared_expert_intermediate_size)
                                               : 0));
  embedding_ = static_cast<double>(architecture::embedding_parameters(model));
  head_ = static_cast<double>(model.hidden_size * model.vocab_size);
  prediction_ = 2.0 * static_cast<double>(model.hidden_size * model.hidden_size);
}

ParameterBytes MemoryModel::layer_parameters(const Strategy& s, architecture::LayerKind kind) const {
  const double shared =
      attention_parameters_ +
      (kind == architecture::LayerKind::dense ? dense_mlp_parameters_ : moe_shared_parameters_);
  return {.dense = shared / s.tp,
          .experts = kind == architecture::LayerKind::dense
                         ? 0.0
                         : expert_parameters_ / (static_cast<double>(s.ep) * s.etp)};
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
  const ModelConfig& model = context_.model();
  const bool last = stage == stages.count - 1;
  const double mtp = last ? static_cast<double>(model.prediction_layers) : 0.0;
  const bool mtp_moe = model.kind(model.layers - 1) == architecture::LayerKind::moe;
  const double dense_layers = stages.dense[stage] + (mtp_moe ? 0.0 : mtp);
  const double moe_layers = stages.moe[stage] + (mtp_moe ? mtp : 0.0);
  double shared = (dense_layers + moe_layers) * attention_parameters_ + dense_layers * dense_mlp_parameters_ +
                  moe_layers * moe_shared_parameters_ + mtp * prediction_;
  // A tied embedding is held by the first and by the last stage. A prediction layer needs it again.
  if (stage == 0 || (last && mtp > 0.0)) {
    shared += embedding_;
  }
  if (last && (!model.tie_word_embeddings || stages.count > 1)) {
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
  return tokens * static_cast<double>(context_.model().vocab_size) / s.tp * context_.software().logit_bytes;
}

MemoryModel::LayerActivations MemoryModel::whole_layer(const Strategy& s) const {
  const ModelConfig& model = context_.model();
  const double own = own_tokens(s);
  const double shared = shared_tokens(s);
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto heads = static_cast<double>(model.heads);
  LayerActivations layer;
  // Both norms' inputs and outputs, and attention's input, which is the first norm's output. Dropout of
  // unfused software keeps two masks of a byte.
  layer.attention = kActivation * 4.0 * shared * hidden;
  const double qk = static_cast<double>(model.head_dim);
  const double v = static_cast<double>(model.value_dim);
  layer.attention += kActivation * own * (heads * (qk + v) + static_cast<double>(model.kv_heads) * (qk + v));
  if (model.attention == architecture::AttentionKind::latent) {
    layer.attention +=
        kActivation * 2.0 * shared * static_cast<double>(model.q_lora_rank + model.kv_lora_rank);
  }
  if (!context_.software().fused_attention) {
    const double score_bytes = s.recompute == Recompute::selective ? 0.0 : 5.0;
    layer.attention +=
        2.0 * shared * hidden + score_bytes * own * heads * static_cast<double>(context_.workload().seq);
  }
  const double up = model.mlp != architecture::MlpKind::plain ? 2.0 : 1.0;
  layer.dense_mlp = kActivation * (up + 1.0) * own * static_cast<double>(model.intermediate_size);
  if (model.experts > 0) {
    const double inner = s.recompute == Recompute::moe_act ? up : up + 1.0;
    layer.moe = kActivation * expert_rows(s) *
                    (2.0 * hidden + inner * static_cast<double>(model.moe_intermediate_size)) +
                kActivation * (up + 1.0) * own * static_cast<double>(model.shared_expert_intermediate_size) +
                4.0 * own * static_cast<double>(model.experts);
  }
  return layer;
}

MemoryModel::LayerActivations MemoryModel::selected_products(const Strategy& s) const {
  const ModelConfig& model = context_.model();
  const double own = own_tokens(s);
  const double shared = shared_tokens(s);
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto heads = static_cast<double>(model.heads);
  const double up = model.mlp != architecture::MlpKind::plain ? 2.0 : 1.0;
  constexpr double kEveryOther = 0.5;
  double products = shared * hidden;  // attention's output
  if (model.attention == architecture::AttentionKind::latent) {
    products +=
        shared * static_cast<double>(model.q_lora_rank + model.kv_lora_rank + model.qk_rope_head_dim) +
        own * heads * static_cast<double>(model.head_dim + model.qk_nope_head_dim + model.value_dim);
  } else {
    products += own * static_cast<double>((model.heads + 2 * model.kv_heads) * model.head_dim);
  }
  LayerActivations layer;
  layer.attention = kActivation * (shared * hidden + own * heads * static_cast<double>(model.value_dim) +
                                   kEveryOther * products);
  const auto mlp = [&](std::int64_t ffn) {
    return ffn > 0 ? own * up * static_cast<double>(ffn) + shared * hidden : 0.0;
  };
  layer.dense_mlp = kActivation * kEveryOther * mlp(model.intermediate_size);
  if (model.experts > 0) {
    const double exchanged = s.ep > 1 ? 2.0 * expert_rows(s) * hidden : 0.0;
    layer.moe = kActivation * (kEveryOther * (mlp(model.shared_expert_intermediate_size) +
                                              own * static_cast<double>(model.experts)) +
                               exchanged);
  }
  return layer;
}

MemoryModel::LayerActivations MemoryModel::kept_of_layer(const Strategy& s,
                                                         const LayerActivations& whole) const {
  const double input = kActivation * shared_tokens(s) * static_cast<double>(context_.model().hidden_size);
  switch (s.recompute) {
    case Recompute::full:
      return {.attention = input};
    case Recompute::half:
      if (context_.software().selects_products) {
        return selected_products(s);
      }
      return {.attention = 0.5 * (whole.attention + input),
              .dense_mlp = 0.5 * whole.dense_mlp,
              .moe = 0.5 * whole.moe};
    default:
      return whole;
  }
}

double MemoryModel::own_tokens(const Strategy& s) const {
  return static_cast<double>(s.micro_batch) * static_cast<double>(context_.workload().seq) / s.cp / s.tp;
}

double MemoryModel::shared_tokens(const Strategy& s) const {
  return s.sequence_parallel ? own_tokens(s) : own_tokens(s) * s.tp;
}

double MemoryModel::expert_rows(const Strategy& s) const {
  const double own = own_tokens(s);
  return own * static_cast<double>(context_.model().experts_per_token) *
         context_.reach(s.ep, s.etp, own).busiest;
}

Memory MemoryModel::of_stage(const Strategy& s, const Stages& stages, int stage) const {
  const ModelConfig& model = context_.model();
  const ParameterBytes parameters = stage_parameters(s, stages, stage);
  Memory memory = held(s, parameters);
  const LayerActivations whole = whole_layer(s);
  const LayerActivations kept = kept_of_layer(s, whole);
  const double rows = model.experts > 0 ? expert_rows(s) : 0.0;
  const double micro_batches = static_cast<double>(context_.workload().global_batch) / s.dp / s.micro_batch;
  const double in_flight = micro_batches_in_flight(s, stage, micro_batches);
  const bool last = stage == stages.count - 1;
  const double dense_layers = stages.dense[stage];
  const double moe_layers = stages.moe[stage] + (last ? static_cast<double>(model.prediction_layers) : 0.0);
  const double layers = dense_layers + moe_layers;
  const double scale = context_.eff(Constant::activations);
  memory.activations = scale * in_flight * (layers * kept.attention + dense_layers * kept.dense_mlp);
  memory.expert_activations = scale * in_flight * moe_layers * kept.moe;
  if (s.recompute == Recompute::half || s.recompute == Recompute::full) {
    // One layer at a time is whole.
    memory.activations += scale * (whole.attention + (dense_layers > 0 ? whole.dense_mlp : 0.0));
    memory.expert_activations += scale * (moe_layers > 0 ? whole.moe : 0.0);
  }
  if (s.recompute == Recompute::moe_act && moe_layers > 0) {
    memory.expert_activations +=
        scale * kActivation * rows * static_cast<double>(model.moe_intermediate_size) / s.chunks;
  }
  // A chunk's rows on their way out and back.
  memory.communication =
      s.ep > 1 ? 2.0 * kActivation * rows * static_cast<double>(model.hidden_size) / s.chunks : 0.0;
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
