#include "expedite/plan/run_prediction.h"

#include <algorithm>

#include "expedite/plan/builtin_clusters.h"

namespace expedite::plan {
namespace {

Machine machine_of(const Run& run) {
  DeviceFacts facts = *find_device_facts(run.hardware);
  if (run.scale_out_gb_per_s > 0.0) {
    facts.scale_out_gb_per_s = run.scale_out_gb_per_s;
  }
  return make_machine(make_cluster(facts, run.strategy.devices()), run.strategy.devices());
}

std::vector<Strategy> candidates_of(const Run& run) {
  std::vector<Strategy> candidates;
  const std::int64_t most_micro_batch = run.micro_batch_unknown ? 8 : run.strategy.micro_batch;
  const auto layers = static_cast<std::int32_t>(run.model.layers);
  // Two more layers than there are: schemes that count embedding and head as one each.
  const std::int32_t most_vpp = run.vpp_unknown ? (layers + 2) / run.strategy.pp : run.strategy.vpp;
  for (std::int64_t mb = run.strategy.micro_batch; mb <= most_micro_batch; mb *= 2) {
    for (std::int32_t vpp = run.strategy.vpp; vpp <= std::max(most_vpp, run.strategy.vpp); ++vpp) {
      Strategy strategy = run.strategy;
      strategy.micro_batch = static_cast<std::int32_t>(mb);
      strategy.vpp = vpp;
      if (run.workload.global_batch % (mb * strategy.dp) == 0 || mb == run.strategy.micro_batch) {
        candidates.push_back(strategy);
      }
    }
  }
  return candidates;
}

}  // namespace

RunPrediction::RunPrediction(const Run& run)
    : run_(run),
      device_(find_device_facts(run.hardware)->kind),
      context_(run.model, machine_of(run), run.workload, run.precision,
               Calibration().of(device_, run.software->name), *run.software, {}, run.forced_balance),
      coster_(context_),
      candidates_(candidates_of(run)),
      flops_(counted_flops(run)),
      peak_(context_.machine().peak_of(Precision::bf16)) {}

StepCost RunPrediction::cost(const Efficiencies& efficiencies) {
  context_.set_efficiencies(efficiencies);
  StepCost best;
  for (const Strategy& strategy : candidates_) {
    const StepCost cost = coster_.cost(strategy);
    const bool fits = cost.memory.total() <= context_.machine().memory_bytes;
    if (best.seconds.total == 0.0 || (fits && cost.seconds.total < best.seconds.total)) {
      best = cost;
    }
  }
  return best;
}

double RunPrediction::predict(const Efficiencies& efficiencies) {
  const StepCost step = cost(efficiencies);
  const auto devices = static_cast<double>(run_.strategy.devices());
  const double flops_per_s = flops_ / step.seconds.total / devices;
  switch (run_.metric) {
    case Metric::iter_time_s:
      return step.seconds.total;
    case Metric::tokens_per_s_per_device:
      return step.tokens_per_s_per_device;
    case Metric::samples_per_s_per_device:
      return step.tokens_per_s_per_device / static_cast<double>(run_.workload.seq);
    case Metric::model_tflops_per_device:
    case Metric::hw_tflops_per_device_incl_recompute:
      return flops_per_s * 1e-12;
    case Metric::mfu_pct:
    case Metric::hfu_pct:
      return 100.0 * flops_per_s / peak_;
    case Metric::peak_alloc_gib:
      return step.memory.total() / (1024.0 * 1024.0 * 1024.0);
    case Metric::peak_mem_gb:
      return step.memory.total() * 1e-9;
  }
  return 0.0;
}

}  // namespace expedite::plan
