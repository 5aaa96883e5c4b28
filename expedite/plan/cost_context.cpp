#include <algorithm>
#include <cmath>

#include "expedite/base/error.h"
#include "expedite/plan/layer_cost.h"

namespace expedite::plan {
namespace {

/// Mean over tokens of the tokens that each attends to.
double attended_tokens(double seq, double window, bool causal) {
  if (!causal) {
    return seq;
  }
  if (window <= 0.0 || window >= seq) {
    return 0.5 * (seq + 1.0);
  }
  return window - window * (window - 1.0) / (2.0 * seq);
}

Constant matmul_constant(Precision precision) {
  switch (precision) {
    case Precision::bf16:
    case Precision::fp16:
      return Constant::matmul;
    case Precision::fp8:
    case Precision::mxfp8:
      return Constant::matmul_fp8;
    case Precision::nvfp4:
      return Constant::matmul_fp4;
  }
  return Constant::matmul;
}

}  // namespace

CostContext::CostContext(const ModelConfig& model, const Machine& machine, const Workload& workload,
                         Precision precision, const Efficiencies& efficiencies, const Software& software,
                         const ExpertLoad& load, bool forced_balance)
    : model_(model),
      machine_(machine),
      reached_(machine),
      workload_(workload),
      precision_(precision),
      software_(software),
      forced_balance_(forced_balance),
      uneven_(!load.weights.empty()) {
  require(machine.peak_of(precision) > 0.0, "the device has no products in {}; choose another precision",
          name_of(precision));
  set_efficiencies(efficiencies);
  const auto seq = static_cast<double>(workload.seq);
  const double windowed = static_cast<double>(model.windowed_layers()) / static_cast<double>(model.layers);
  attended_causal_ = windowed * attended_tokens(seq, static_cast<double>(model.sliding_window), true) +
                     (1.0 - windowed) * attended_tokens(seq, 0.0, true);
  attended_full_ = attended_tokens(seq, 0.0, false);
  if (model.experts == 0) {
    return;
  }
  const cost::Routing routing{
      .experts = model.experts, .topk = model.experts_per_token, .weights = load.weights};
  const auto per_node = static_cast<std::int64_t>(machine.level_count > 0 ? machine.levels[0].ranks : 1.0);
  reach_ = expert_reaches(routing, load.by_expert, machine.ranks, per_node);
}

void CostContext::set_efficiencies(const Efficiencies& efficiencies) {
  efficiencies_ = efficiencies;
  if (software_.blocking) {
    efficiencies_.values[static_cast<std::size_t>(Constant::tp_exposed)] = 1.0;
    efficiencies_.values[static_cast<std::size_t>(Constant::gradient_exposed)] = 1.0;
  }
  peak_ = machine_.peak_of(precision_) * efficiencies[matmul_constant(precision_)];
  memory_bandwidth_ = machine_.memory_bandwidth * efficiencies[Constant::memory];
  for (int i = 0; i < machine_.level_count; ++i) {
    reached_.levels[i].bandwidth =
        machine_.levels[i].bandwidth * efficiencies[i == 0 ? Constant::intra : Constant::inter];
  }
}

CostContext::Reach CostContext::reach(std::int64_t ep, std::int64_t etp, double tokens) const {
  const auto found = std::ranges::lower_bound(reach_, ep, {}, &ExpertReach::ep);
  Reach reach{.ranks = found->ranks, .nodes = found->nodes, .busiest = found->busiest};
  if (etp > 1) {
    const double per_node = machine_.level_count > 0 ? machine_.levels[0].ranks : 1.0;
    reach.nodes = std::min(reach.nodes * static_cast<double>(etp),
                           std::max(1.0, static_cast<double>(ep * etp) / per_node));
  }
  if (!forced_balance_) {
    reach.busiest = found->busiest_of(tokens * static_cast<double>(model_.experts_per_token));
  }
  return reach;
}

double CostContext::expert_load(const Strategy& s, bool busiest) const {
  const double tokens = static_cast<double>(s.micro_batch) * static_cast<double>(workload_.seq) / s.cp / s.tp;
  const double most = reach(s.ep, s.etp, tokens).busiest;
  return busiest || s.ep == 1 ? most : (s.ep - most) / (s.ep - 1.0);
}

double CostContext::matmul(double m, double n, double k, double count, Constant half) const {
  const double h = eff(Constant::half_size);
  const double m_half = half == Constant::half_size ? h : eff(half);
  const double flops = 2.0 * m * n * k * count;
  const double rate = peak_ * (m / (m + m_half)) * (n / (n + h)) * (k / (k + h));
  const double element = factor_bytes(precision_);
  const double bytes = count * (element * (m * k + k * n) + 2.0 * m * n);
  return std::max(flops / rate, bytes / memory_bandwidth_);
}

double CostContext::weight_gradient(double m, double n, double k, double count, Constant half) const {
  const double h = eff(Constant::half_size);
  const double m_half = half == Constant::half_size ? h : eff(half);
  const double flops = 2.0 * m * n * k * count;
  const double rate = peak_ * (m / (m + m_half)) * (n / (n + h)) * (k / (k + h));
  const double element = factor_bytes(precision_);
  const double bytes = count * (element * m * (k + n) + 8.0 * k * n);
  return std::max(flops / rate, bytes / memory_bandwidth_);
}

}  // namespace expedite::plan
