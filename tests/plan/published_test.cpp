// Runs that were published and that no constant was fitted to, as users plan them: with the defaults.
#include <gtest/gtest.h>

#include "expedite/plan/builtin_clusters.h"
#include "expedite/plan/machine.h"
#include "expedite/plan/step_cost.h"

namespace expedite::plan {
namespace {

constexpr const char* kCluster = EXPEDITE_FIXTURES "/plan/gh200_slingshot.yaml";
constexpr const char* kSmallMoe = EXPEDITE_FIXTURES "/plan/deepseek_16b.json";

struct Plan {
  std::string model;
  std::string cluster;
  std::int64_t devices;
  Workload workload;
  std::string_view software = default_software().name;
};

/// The strategy's cost, and whether its memory fits.
struct Outcome {
  StepCost cost;
  bool fits;
};

Outcome outcome_of(const Plan& plan, const char* strategy) {
  const ModelConfig model = architecture::load_model_config(plan.model);
  const cost::Cluster cluster = load_cluster(plan.cluster, plan.devices);
  const Machine machine = make_machine(cluster, plan.devices);
  const CostContext context(model, machine, plan.workload, Precision::bf16,
                            builtin_calibration().of(cluster.devices.front().kind, plan.software),
                            *find_software(plan.software));
  const StepCost cost = StepCoster(context).cost(parse_strategy(strategy, plan.devices));
  return {cost, cost.memory.total() <= machine.memory_bytes};
}

// 256 GH200 on Slingshot, one micro-batch a step: 0.988 s.
TEST(Published, ShortDenseStepIsNotDwarfedByWhatLongStepsTaught) {
  const Plan plan{.model = "llama3-8b", .cluster = kCluster, .devices = 256, .workload = {8192, 256}};
  const StepSeconds seconds = outcome_of(plan, "mb=1").cost.seconds;
  EXPECT_NEAR(seconds.total, 0.988, 0.1 * 0.988);
  EXPECT_LT(seconds.overhead, 0.15 * seconds.total);
  EXPECT_LT(seconds.gradients, 0.25 * seconds.total);
}

// A small MoE in TorchTitan on 8 H100 with products selected for recomputation: 96 % of 79 GiB with experts
// whole on every rank, out of memory with experts spread.
TEST(Published, SmallMoeFitsWithItsExpertsOnEveryRank) {
  const Plan plan{
      .model = kSmallMoe, .cluster = "h100", .devices = 8, .workload = {4096, 32}, .software = "torchtitan"};
  const Outcome alone = outcome_of(plan, "zero=3,ep=1,mb=4,recompute=half");
  EXPECT_TRUE(alone.fits);
  EXPECT_NEAR(alone.cost.memory.total() / kGib, 0.96 * 79.0, 0.1 * 79.0);
  EXPECT_FALSE(outcome_of(plan, "zero=3,ep=8,mb=4,recompute=half").fits);
}

// TorchTitan's benchmarks of December 2024 (benchmarks/llama3_h100_202412_torchtitan.md): Llama 3.1 8B, two
// sequences of 8192 on each device, with selected products; without and with torch.compile.
TEST(Published, MemoryOfTorchTitanIsThatOfItsBenchmarks) {
  struct Row {
    std::int64_t devices;
    double eager;
    double compiled;
  };
  for (const Row& row : {Row{8, 82.4, 77.0}, Row{128, 67.0, 62.0}}) {
    const Plan plan{.model = "llama3-8b",
                    .cluster = "h100",
                    .devices = row.devices,
                    .workload = {8192, 2 * row.devices},
                    .software = "torchtitan"};
    const double gib = outcome_of(plan, "zero=3,mb=2,recompute=half").cost.memory.total() / kGib;
    EXPECT_NEAR(gib, row.eager, 0.08 * row.eager);
    EXPECT_NEAR(gib, row.compiled, 0.08 * row.compiled);
  }
}

}  // namespace
}  // namespace expedite::plan
