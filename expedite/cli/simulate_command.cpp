#include <fmt/core.h>

#include <memory>

#include "expedite/cli/commands.h"
#include "expedite/cli/plan_inputs.h"
#include "expedite/plan/step_cost.h"

namespace expedite::cli {
namespace {

struct SimulateOptions {
  PlanInputs inputs;
  std::string strategy;
};

int run_simulate(const SimulateOptions& options) {
  const plan::Transformer model = plan::load_transformer(options.inputs.model);
  const plan::CostContext context = make_context(options.inputs, model);
  const plan::Strategy strategy = legal_strategy(options.inputs, model, "--strategy", options.strategy);
  fmt::print("{}{}\n", describe(options.inputs, model), plan::to_string(strategy));
  const plan::StepCost cost = plan::StepCoster(context).cost(strategy);
  fmt::print("step in closed form {:.3f} s\n", cost.seconds.total);
  return 0;
}

}  // namespace

void add_simulate_command(CLI::App& app, Context& context) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command = app.add_subcommand("simulate", "Simulate one training step of a strategy");
  add_plan_inputs(*command, options->inputs, true);
  command->add_option("--strategy", options->strategy, "tp=8,pp=16,vpp=2,ep=32,...; what is not given is 1")
      ->required();
  command->callback([options, &context] { context.exit_code = run_simulate(*options); });
}

}  // namespace expedite::cli
