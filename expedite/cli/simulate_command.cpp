#include <fmt/core.h>

#include <memory>

#include "expedite/cli/commands.h"
#include "expedite/cli/plan_inputs.h"
#include "expedite/cli/text_file.h"
#include "expedite/plan/simulation_report.h"

namespace expedite::cli {
namespace {

struct SimulateOptions {
  PlanInputs inputs;
  std::string strategy;
  std::string trace;
  std::string json;
};

int run_simulate(const SimulateOptions& options) {
  const plan::Transformer model = plan::load_transformer(options.inputs.model);
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
  CLI::App* command = app.add_subcommand("simulate", "Simulate one training step of a strategy");
  add_plan_inputs(*command, options->inputs, true);
  command->add_option("--strategy", options->strategy, "tp=8,pp=16,vpp=2,ep=32,...; what is not given is 1")
      ->required();
  command->add_option("--trace", options->trace, "Write the step's trace for Perfetto to this file");
  command->add_option("--json", options->json, "Write the result to this file");
  command->callback([options, &context] { context.exit_code = run_simulate(*options); });
}

}  // namespace expedite::cli
