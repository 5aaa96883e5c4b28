// What is planned for: the options that plan and simulate share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "expedite/plan/calibration.h"
#include "expedite/plan/layer_cost.h"
#include "expedite/plan/strategy.h"

namespace expedite::cli {

struct PlanInputs {
  std::string model;
  std::string cluster;
  std::string device;
  std::int64_t devices = 0;
  plan::Workload workload;
  std::string precision = "bf16";
  std::string software = std::string(plan::default_software().name);
  double zipf = 0.0;
  std::string load;
  bool forced_balance = false;
};

/// `required`: model, cluster, devices and batch must be given.
void add_plan_inputs(CLI::App& command, PlanInputs& inputs, bool required);

/// Throws UsageError that names all that is missing of what a strategy's step needs; `otherwise` ends it.
void require_strategy_inputs(const PlanInputs& inputs, const std::string& strategy,
                             const std::string& otherwise);

/// Throws Error naming the option and what is legal.
[[nodiscard]] plan::CostContext make_context(const PlanInputs& inputs, const ModelConfig& model);

/// "pangu-ultra-moe-718b: 719.1 B parameters, 40.4 B active; 6144 devices of ascend-910b, bf16, constants of
/// ...".
[[nodiscard]] std::string describe(const PlanInputs& inputs, const ModelConfig& model);

/// A strategy as --explain and --strategy take it. Throws Error naming `option`, the knob and what is legal.
[[nodiscard]] plan::Strategy legal_strategy(const PlanInputs& inputs, const ModelConfig& model,
                                            const std::string& option, const std::string& text);

}  // namespace expedite::cli
