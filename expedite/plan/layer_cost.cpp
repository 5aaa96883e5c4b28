#include "expedite/plan/layer_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "expedite/cost/chunk_overlap.h"
#include "expedite/cost/pair_overlap.h"

namespace expedite::plan {
namespace {

using schedule::Dispatcher;

constexpr double kBytes = 2.0;  // of an activation
// Fused attention makes the scores again in backward: five products where forward has two.
constexpr double kFusedBackward = 2.5;
// Reading and writing a score in 16 bits: scale and mask, softmax, dropout, and the two products.
constexpr double kUnfusedScoreBytes = 16.0;

/// The operations of one layer, with the sizes they share.
class LayerCoster {
 public:
  LayerCoster(const CostContext& context, const Strategy& strategy, bool busiest = true)
      : context_(context),
        model_(context.model()),
        strategy_(strategy),
        tp_(strategy.tp),
        hidden_(static_cast<double>(model_.hidden_size)),
        tokens_(static_cast<double>(strategy.micro_batch) * static_cast<double>(context.workload().seq) /
                strategy.cp),
        own_tokens_(tokens_ / tp_),
        // Without sequence parallelism every rank of tp does the same on all tokens.
        shared_tokens_(strategy.sequence_parallel ? own_tokens_ : tokens_),
        narrow_(factor_bytes(context.precision()) < kBytes),
        busiest_(busiest) {}

  [[nodiscard]] LayerOperations take() { return std::move(layer_); }
  /// Of what was costed outside of any operation of a layer.
  [[nodiscard]] OperationTimes take_alone() { return layer_.times[0]; }

  void attention() {
    at_ = &layer_[Operation::attention];
    projections();
    core();
    norms();
    tensor_communication(1.0);
    context_communication();
  }

  void dense() {
    at_ = &layer_[Operation::mlp];
    gap(Constant::layer_gap);
    mlp(static_cast<double>(model_.intermediate_size), tokens_, tp_);
    tensor_communication(1.0);
    finish();
  }

  void moe() {
    at_ = &layer_[Operation::router];
    gap(Constant::layer_gap);
    gap(Constant::moe_overhead);
    product(own_tokens_, static_cast<double>(model_.experts), hidden_);
    if (model_.shared_expert_intermediate_size > 0) {
      at_ = &layer_[Operation::shared_experts];
      mlp(static_cast<double>(model_.shared_expert_intermediate_size), tokens_, tp_);
      tensor_communication(1.0);
    }
    experts();
    finish();
  }

  /// A product of `m` rows and its two in backward, with their factors made narrow.
  void product(double m, double n, double k, double count = 1.0, Constant half = Constant::half_size) {
    const double forward = context_.matmul(m, n, k, count, half);
    const double weights = context_.weight_gradient(m, n, k, count, half);
    at_->forward[Cause::matmul] += forward;
    at_->input_grad[Cause::matmul] += context_.matmul(m, k, n, count, half);
    at_->weight_grad[Cause::matmul] += weights;
    if (narrow_) {
      const double bytes =
          count * (kBytes + factor_bytes(context_.precision())) * context_.eff(Constant::quantize);
      traffic(bytes * m * k, bytes * m * (k + 2.0 * n));
    }
  }

  void traffic(double forward_bytes, double backward_bytes) {
    at_->forward[Cause::memory] += forward_bytes / context_.memory_bandwidth();
    at_->input_grad[Cause::memory] += backward_bytes / context_.memory_bandwidth();
  }

  [[nodiscard]] double tokens() const { return tokens_; }
  [[nodiscard]] double shared_tokens() const { return shared_tokens_; }

 private:
  void gap(Constant constant) {
    at_->forward[Cause::host] += context_.eff(constant);
    at_->input_grad[Cause::host] += context_.eff(constant);
  }

  void projections() {
    const auto heads = static_cast<double>(model_.heads);
    const double t = tokens_;
    if (model_.attention == architecture::AttentionKind::latent) {
      const auto q_rank = static_cast<double>(model_.q_lora_rank);
      const auto kv_rank = static_cast<double>(model_.kv_lora_rank);
      const double query = heads * static_cast<double>(model_.head_dim) / tp_;
      if (q_rank > 0.0) {
        product(shared_tokens_, q_rank, hidden_);
        product(t, query, q_rank);
      } else {
        product(t, query, hidden_);
      }
      product(shared_tokens_, kv_rank + static_cast<double>(model_.qk_rope_head_dim), hidden_);
      product(t, heads * static_cast<double>(model_.qk_nope_head_dim + model_.value_dim) / tp_, kv_rank);
    } else {
      const double kv_heads = std::max(1.0, static_cast<double>(model_.kv_heads) / tp_);
      product(t, (heads / tp_ + 2.0 * kv_heads) * static_cast<double>(model_.head_dim), hidden_);
    }
    product(t, hidden_, heads * static_cast<double>(model_.value_dim) / tp_);
  }

  void core() {
    const bool fused = context_.software().fused_attention;
    const double heads = static_cast<double>(model_.heads) / tp_;
    const double scores = tokens_ * heads * context_.attended(fused);
    const double flops = 2.0 * scores * static_cast<double>(model_.head_dim + model_.value_dim);
    const double peak = context_.machine().peak_of(Precision::bf16);
    if (fused) {
      core_forward_ = flops / (peak * context_.eff(Constant::attention));
      at_->forward[Cause::attention] += core_forward_;
      at_->input_grad[Cause::attention] += kFusedBackward * core_forward_;
    } else {
      const double products = flops / (peak * context_.eff(Constant::matmul));
      const double passes = kUnfusedScoreBytes * scores / context_.memory_bandwidth();
      core_forward_ = products + passes;
      at_->forward[Cause::attention] += core_forward_;
      at_->input_grad[Cause::attention] += 2.0 * products + passes;
    }
  }

  void norms() {
    // Two norms read and write, two residual sums read twice and write; backward as much again and half.
    const double residual = 10.0 * kBytes * shared_tokens_ * hidden_;
    const double rotary = 2.0 * kBytes * tokens_ * static_cast<double>(model_.heads + model_.kv_heads) / tp_ *
                          static_cast<double>(model_.head_dim);
    traffic(residual + rotary, 1.5 * residual + rotary);
  }

  void mlp(double ffn, double t, double shards) {
    const double inner = ffn / shards;
    const double up = model_.mlp != architecture::MlpKind::plain ? 2.0 : 1.0;
    product(t, up * inner, hidden_);
    product(t, hidden_, inner);
    activation(t, inner, up);
  }

  void activation(double rows, double inner, double up) {
    const double bytes = kBytes * rows * inner;
    traffic((up + 1.0) * bytes, (2.0 * up + 1.0) * bytes);
  }

  void experts() {
    const double ep = strategy_.ep;
    const double etp = strategy_.etp;
    const auto topk = static_cast<double>(model_.experts_per_token);
    const CostContext::Reach reach = context_.reach(strategy_.ep, strategy_.etp, own_tokens_);
    const double rows = own_tokens_ * topk * context_.expert_load(strategy_, busiest_) * etp;
    const double local = static_cast<double>(model_.experts) / ep;
    const double inner = static_cast<double>(model_.moe_intermediate_size) / etp;
    const double up = model_.mlp != architecture::MlpKind::plain ? 2.0 : 1.0;
    // Chunks divide the rows of every expert; the smaller products are what chunking costs.
    const double chunk_count = strategy_.chunks;
    const double chunk_rows = rows / local / chunk_count;
    at_ = &layer_[Operation::experts];
    product(chunk_rows, up * inner, hidden_, local * chunk_count, Constant::expert_half_size);
    product(chunk_rows, hidden_, inner, local * chunk_count, Constant::expert_half_size);
    activation(rows, inner, up);
    if (strategy_.recompute == Recompute::moe_act) {
      traffic(0.0, (up + 1.0) * kBytes * rows * inner);
    }
    at_ = &layer_[Operation::rows];
    const double moved = context_.eff(Constant::moe_rows) * kBytes * rows * hidden_;
    traffic(moved, moved);
    if (ep > 1.0) {
      exchange(reach);
    }
    at_ = &layer_[Operation::experts];
    if (etp > 1.0) {
      const Span span = context_.machine().span(etp, 1.0);
      const double bytes = kBytes * rows * hidden_;
      const double seconds = 2.0 * gather_seconds(context_.reached(), span, bytes);
      at_->forward[Cause::tensor] += seconds;
      at_->input_grad[Cause::tensor] += seconds;
    }
  }

  /// One way of dispatch or combine, as cost/dispatch_cost.h describes each dispatcher.
  [[nodiscard]] ExchangeTimes wire(const CostContext::Reach& reach) const {
    const double ep = strategy_.ep;
    const double etp = strategy_.etp;
    const Span span = context_.machine().span(ep, etp);
    const double row = own_tokens_ * kBytes * hidden_ * reach.busiest;
    const auto topk = static_cast<double>(model_.experts_per_token);
    const double nodes = std::max(1.0, ep / span.inside[0]);
    const Level& inner = context_.reached().levels[0];
    const Level& outer = context_.reached().levels[std::min(1, context_.reached().level_count - 1)];
    switch (strategy_.dispatcher) {
      case Dispatcher::alltoall:
        return {.between = all_to_all_seconds(context_.reached(), span, row * topk)};
      case Dispatcher::zero_redundancy:
        return {.between = all_to_all_seconds(context_.reached(), span, row * reach.ranks)};
      case Dispatcher::hierarchical:
      case Dispatcher::hierarchical_dedup: {
        const bool dedup = strategy_.dispatcher == Dispatcher::hierarchical_dedup;
        const double other_nodes = dedup ? reach.nodes * (nodes - 1.0) / nodes : nodes - 1.0;
        return {.between = nodes > 1.0
                               ? row * other_nodes / outer.bandwidth + outer.latency * std::log2(nodes)
                               : 0.0,
                .within = span.inside[0] > 1.0
                              ? row * reach.ranks * (1.0 - 1.0 / span.inside[0]) / inner.bandwidth +
                                    inner.latency * std::log2(span.inside[0])
                              : 0.0};
      }
    }
    return {};
  }

  void exchange(const CostContext::Reach& reach) {
    const double share = context_.eff(Constant::ep_exposed);
    layer_.exchange = wire(reach);
    const double one_way = layer_.exchange.total(strategy_.chunks);
    const OperationTimes& experts = layer_[Operation::experts];
    const OperationTimes& rows = layer_[Operation::rows];
    const OperationTimes& shared = layer_[Operation::shared_experts];
    // As schedule::MoeLayer orders them. Attention's weight gradients are those of the layer above.
    const double half_shared = 0.5 * shared.forward.total();
    layer_.covered_forward =
        exposed(one_way, experts.forward.total() + rows.forward.total(), 0.0, half_shared, half_shared);
    layer_.covered_backward =
        exposed(one_way, experts.input_grad.total() + rows.input_grad.total(), experts.weight_grad.total(),
                shared.input_grad.total() + layer_[Operation::attention].weight_grad.total(),
                shared.weight_grad.total());
    layer_.uncovered_backward = exposed(one_way, experts.input_grad.total() + rows.input_grad.total(), 0.0,
                                        shared.input_grad.total(), 0.0);
    if (strategy_.chunks == 1) {
      layer_.uncovered_backward = 2.0 * one_way * share;
      layer_.exposed_forward = layer_.exposed_backward = 2.0 * one_way * share;
    } else {
      layer_.exposed_forward = layer_.covered_forward;
      layer_.exposed_backward = layer_.covered_backward;
    }
  }

  /// Of one direction whose experts take `compute`; `behind` them, and under the first and last exchange, run
  /// what does not wait for exchanges.
  [[nodiscard]] double exposed(double one_way, double compute, double behind, double first,
                               double last) const {
    const auto n = static_cast<std::size_t>(strategy_.chunks);
    const auto share = [&](double seconds) { return std::vector<double>(n, seconds / strategy_.chunks); };
    const cost::ChunkTimes chunk{.out = share(one_way),
                                 .experts = share(compute),
                                 .back = share(one_way),
                                 .behind = share(behind),
                                 .first_cover = first,
                                 .last_cover = last};
    return cost::overlap(schedule::ChunkPipeline::continuous, 2, chunk).exposed;
  }

  /// Forward an all-gather before and a reduce-scatter behind, or one all-reduce of the same bytes; backward
  /// mirrors them.
  void tensor_communication(double pairs) {
    if (tp_ <= 1.0) {
      return;
    }
    const Span span = context_.machine().span(tp_, 1.0);
    const double seconds = pairs * 2.0 * context_.eff(Constant::tp_exposed) *
                           gather_seconds(context_.reached(), span, kBytes * tokens_ * hidden_);
    at_->forward[Cause::tensor] += seconds;
    at_->input_grad[Cause::tensor] += seconds;
  }

  /// Keys and values travel around a ring while attention works on those at hand (Liu et al., 2023,
  /// arXiv:2310.01889); backward returns their gradients too.
  void context_communication() {
    if (strategy_.cp <= 1) {
      return;
    }
    const double cp = strategy_.cp;
    const Span span = context_.machine().span(cp, tp_);
    const double kv_heads = std::max(1.0, static_cast<double>(model_.kv_heads) / tp_);
    const double bytes =
        kBytes * tokens_ * cp * kv_heads * static_cast<double>(model_.head_dim + model_.value_dim);
    const double seconds = gather_seconds(context_.reached(), span, bytes);
    const double hidden_under = (cp - 1.0) / cp * core_forward_;
    at_->forward[Cause::context] += std::max(seconds / cp, seconds - hidden_under);
    at_->input_grad[Cause::context] +=
        std::max(2.0 * seconds / cp, 2.0 * seconds - kFusedBackward * hidden_under);
  }

  /// What recomputing adds, and the host's part.
  void finish() {
    switch (strategy_.recompute) {
      case Recompute::none:
      case Recompute::moe_act:  // part of its operation
        break;
      case Recompute::selective:
        // Fused attention keeps no scores, so there is nothing to save by recomputing its core.
        if (!context_.software().fused_attention) {
          layer_[Operation::attention].input_grad[Cause::attention] += core_forward_;
        }
        break;
      case Recompute::half:
        layer_.recomputed = 0.5;
        break;
      case Recompute::full:
        layer_.recomputed = 1.0;
        break;
    }
    layer_.chunks = strategy_.chunks;
    const double host = context_.eff(Constant::layer_overhead);
    const LayerTimes device = layer_times(layer_, layer_);
    layer_.host_forward = beside_host(device.forward.total(), host);
    layer_.host_backward =
        beside_host(device.backward.total(), host * (strategy_.recompute == Recompute::full ? 2.0 : 1.0));
  }

  static double beside_host(double device, double host) { return std::hypot(device, host) - device; }

  const CostContext& context_;
  const ModelConfig& model_;
  const Strategy& strategy_;
  double tp_;
  double hidden_;
  double tokens_;         // of a micro-batch on the ranks of tp together
  double own_tokens_;     // that a rank routes
  double shared_tokens_;  // that a rank normalises
  bool narrow_;
  bool busiest_;
  double core_forward_ = 0.0;
  LayerOperations layer_;
  OperationTimes* at_ = &layer_.times[0];  // the operation that is being costed
};

/// As schedule::StageTasks cuts a layer.
cost::PairTimes pair_times(const LayerOperations& layer, bool recomputed) {
  const OperationTimes& attention = layer[Operation::attention];
  const OperationTimes& router = layer[Operation::router];
  const OperationTimes& shared = layer[Operation::shared_experts];
  const OperationTimes& experts = layer[Operation::experts];
  const OperationTimes& rows = layer[Operation::rows];
  const double pack = 0.5 * rows.forward.total();
  const double pack_back = 0.5 * rows.input_grad.total();
  const double half_shared = 0.5 * shared.forward.total();
  const double ahead = attention.forward.total() + router.forward.total();
  const double behind = router.input_grad.total() + router.weight_grad.total() + attention.input_grad.total();
  cost::PairTimes times{.forward = {{.before = pack + ahead + pack},
                                    {.before = half_shared + experts.forward.total(),
                                     .after = half_shared,
                                     .inner_first = true}},
                        .backward = {},
                        .between = layer.exchange.between,
                        .within = layer.exchange.within};
  cost::PairPiece combine{.before = pack_back};
  if (recomputed) {
    times.backward = {
        {.before = pack_back + behind + ahead + pack, .after = attention.weight_grad.total()},
        {.before = half_shared + experts.forward.total(), .after = half_shared, .inner_first = true}};
    combine.before += pack;
  } else {
    combine.before += pack_back + behind;
    combine.after = attention.weight_grad.total();
  }
  times.backward.push_back(combine);
  times.backward.push_back({.before = shared.input_grad.total() + experts.input_grad.total(),
                            .after = experts.weight_grad.total() + shared.weight_grad.total(),
                            .inner_first = true});
  return times;
}

double exposed_in_pair(const LayerOperations& layer) {
  double exposed = 0.0;
  if (layer.recomputed < 1.0) {
    exposed += (1.0 - layer.recomputed) * cost::pair_exposed(pair_times(layer, false));
  }
  if (layer.recomputed > 0.0) {
    exposed += layer.recomputed * cost::pair_exposed(pair_times(layer, true));
  }
  return exposed;
}

}  // namespace

LayerOperations layer_operations(const CostContext& context, const Strategy& strategy,
                                 architecture::LayerKind kind, bool busiest) {
  LayerCoster coster(context, strategy, busiest);
  coster.attention();
  if (kind == architecture::LayerKind::dense) {
    coster.dense();
  } else {
    coster.moe();
  }
  return coster.take();
}

LayerTimes layer_times(const LayerOperations& layer, const LayerOperations& whole) {
  LayerTimes sum;
  for (const OperationTimes& operation : layer.times) {
    sum.forward.add(operation.forward);
    sum.backward.add(operation.input_grad);
    sum.backward.add(operation.weight_grad);
    sum.weights += operation.weight_grad.total();
  }
  sum.forward[Cause::expert] += layer.exposed_forward;
  sum.backward[Cause::expert] += layer.exposed_backward;
  sum.backward.add(sum.forward, layer.recomputed);
  sum.forward[Cause::host] += layer.host_forward;
  sum.backward[Cause::host] += layer.host_backward;
  const double times = 4.0 + 2.0 * layer.recomputed;
  sum.expert_wire = times * layer.exchange.total(layer.chunks);
  for (const OperationTimes& operation : whole.times) {
    sum.paired.add(operation.forward, 1.0 + whole.recomputed);
    sum.paired.add(operation.input_grad);
    sum.paired.add(operation.weight_grad);
  }
  sum.paired[Cause::host] += whole.host_forward + whole.host_backward;
  if (whole.exchange.total(1.0) > 0.0) {
    sum.paired[Cause::expert] += exposed_in_pair(whole);
  }
  sum.covered_forward = layer.covered_forward;
  sum.covered_backward = layer.covered_backward + layer.recomputed * layer.covered_forward;
  sum.uncovered_backward = layer.uncovered_backward + layer.recomputed * layer.exposed_forward;
  return sum;
}

LayerTimes layer_times(const CostContext& context, const Strategy& strategy, architecture::LayerKind kind) {
  const LayerOperations layer = layer_operations(context, strategy, kind);
  if (strategy.chunks == 1 || kind == architecture::LayerKind::dense) {
    return layer_times(layer, layer);
  }
  Strategy whole = strategy;
  whole.chunks = 1;
  return layer_times(layer, layer_operations(context, whole, kind));
}

LayerTimes layer_times(const OperationTimes& operation) {
  LayerTimes times{.forward = operation.forward, .backward = operation.input_grad};
  times.backward.add(operation.weight_grad);
  times.weights = operation.weight_grad.total();
  times.paired = times.forward;
  times.paired.add(times.backward);
  return times;
}

OperationTimes head_operation(const CostContext& context, const Strategy& strategy) {
  LayerCoster coster(context, strategy);
  const double columns = static_cast<double>(context.model().vocab_size) / strategy.tp;
  coster.product(coster.tokens(), columns, static_cast<double>(context.model().hidden_size));
  // Logits in 32 bits: written, read for the largest and the sum, and the gradient written.
  coster.traffic(8.0 * coster.tokens() * columns, 6.0 * coster.tokens() * columns);
  return coster.take_alone();
}

OperationTimes prediction_operation(const CostContext& context, const Strategy& strategy) {
  LayerCoster coster(context, strategy);
  const auto hidden = static_cast<double>(context.model().hidden_size);
  coster.product(coster.tokens(), hidden / strategy.tp, 2.0 * hidden);
  coster.traffic(12.0 * coster.shared_tokens() * hidden, 18.0 * coster.shared_tokens() * hidden);
  return coster.take_alone();
}

}  // namespace expedite::plan
