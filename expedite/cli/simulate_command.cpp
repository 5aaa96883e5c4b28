#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "expedite/base/log.h"
#include "expedite/cli/commands.h"
#include "expedite/cli/plan_inputs.h"
#include "expedite/cli/simulate_training.h"
#include "expedite/cli/text_file.h"
#include "expedite/cli/usage.h"
#include "expedite/plan/builtin_clusters.h"
#include "expedite/plan/simulation_report.h"

namespace expedite::cli {
namespace {

struct SimulateOptions {
  PlanInputs inputs;
  std::string strategy;
  SimulateTraining training;  // where it has a configuration
  std::string trace;
  std::string json;
};

/// A training run is simulated with what was measured of CPUs, which data sheets do not have.
void require_probed_cluster(const std::string& cluster) {
  require_usage(
      !cluster.empty(),
      "a training run's CONFIG needs --cluster FILE, what `expedite probe --ranks N --out FILE` has measured "
      "where it runs, N as in the run");
  std::error_code ignored;
  require_usage(
      plan::find_device_facts(cluster) == nullptr || std::filesystem::exists(cluster, ignored),
      "--cluster {} is built in, from data sheets, for strategies; a training run's CONFIG needs a measured "
      "one: `expedite probe --ranks N --out cluster.yaml`, then --cluster cluster.yaml",
      cluster);
}

int run_simulate(const SimulateOptions& options) {
  initialize_logging(0, 1);
  if (!options.training.config.empty()) {
    require_probed_cluster(options.inputs.cluster);
    SimulateTraining training = options.training;
    training.trace = options.trace;
    training.json = options.json;
    return simulate_training(training, options.inputs.cluster);
  }
  require_strategy_inputs(options.inputs, options.strategy, "a training run's is CONFIG --cluster FILE");
  const ModelConfig model = architecture::load_model_config(options.inputs.model);
  const plan::CostContext context = make_context(options.inputs, model);
  const plan::Strategy strategy = legal_strategy(options.inputs, model, "--strategy", options.strategy);
  fmt::print("{}", describe(options.inputs, model));
  const plan::SimulatedStep step = plan::simulate_step(context, strategy, !options.trace.empty());
  fmt::print("{}", plan::describe(step, strategy, context.machine().memory_bytes));
  if (!options.trace.empty()) {
    tracing::write_chrome_trace(options.trace, step.traces);
  }
  if (!options.json.empty()) {
    write_text_file(options.json, plan::to_json(step, strategy));
  }
  return 0;
}

}  // namespace

void add_simulate_command(CLI::App& app, Context& context) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command =
      app.add_subcommand("simulate", "Simulate one training step, of a strategy or of a training run");
  add_plan_inputs(*command, options->inputs, false);
  command->add_option("--strategy", options->strategy, "tp=8,pp=16,vpp=2,ep=32,...; what is not given is 1");
  add_simulate_training_options(*command, options->training);
  command->add_option("--trace", options->trace, "Write the step's trace for Perfetto to this file");
  command->add_option("--json", options->json, "Write the result to this file");
  command->callback([options, &context] { context.exit_code = run_simulate(*options); });
}

}  // namespace expedite::cli
