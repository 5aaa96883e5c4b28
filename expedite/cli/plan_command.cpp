#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "expedite/base/cores.h"
#include "expedite/base/log.h"
#include "expedite/cli/commands.h"
#include "expedite/cli/legal_values.h"
#include "expedite/cli/plan_inputs.h"
#include "expedite/cli/text_file.h"
#include "expedite/plan/launch_flags.h"
#include "expedite/plan/plan_report.h"

namespace expedite::cli {
namespace {

struct PlanOptions {
  PlanInputs inputs;
  std::int64_t top = 10;
  double memory_limit_gib = 0.0;
  std::int64_t simulated = 10;
  std::string json;
  std::string trace;
  std::string explain;
  std::string emit;
  bool exhaustive = false;
  int threads = 0;
};

void show_progress(double share) {
  constexpr int kWidth = 40;
  const int filled = static_cast<int>(share * kWidth);
  fmt::print(stderr, "\r[{:<{}}] {:3.0f} %", std::string(static_cast<std::size_t>(filled), '='), kWidth,
             100.0 * share);
  std::fflush(stderr);
}

plan::Launcher launcher_of(const PlanOptions& options) {
  return options.emit == "megatron" ? plan::Launcher::megatron : plan::Launcher::mindspeed;
}

plan::SearchSpace space_of(const PlanOptions& options, const plan::CostContext& context) {
  plan::SearchSpace space = plan::default_space(context, options.inputs.devices);
  if (!options.emit.empty()) {
    plan::keep_what_it_can(launcher_of(options), context, space);
  }
  return space;
}

void emit(const PlanOptions& options, const plan::Strategy& strategy, const plan::CostContext& context) {
  if (!options.emit.empty()) {
    fmt::print("\n{}", plan::launch_flags(launcher_of(options), context, strategy));
  }
}

void explain(const PlanOptions& options, const plan::CostContext& context, double memory_limit) {
  const plan::Strategy strategy =
      legal_strategy(options.inputs, context.model(), "--explain", options.explain);
  fmt::print("{}", plan::explain_strategy(context, strategy, space_of(options, context), memory_limit));
  emit(options, strategy, context);
}

int run_plan(const PlanOptions& options) {
  initialize_logging(0, 1);
  const ModelConfig model = architecture::load_model_config(options.inputs.model);
  const plan::CostContext context = make_context(options.inputs, model);
  const double memory_limit =
      options.memory_limit_gib > 0.0 ? options.memory_limit_gib * plan::kGib : context.machine().memory_bytes;
  fmt::print("{}", describe(options.inputs, model));
  if (!options.explain.empty()) {
    explain(options, context, memory_limit);
    return 0;
  }
  plan::SearchOptions search{.devices = options.inputs.devices,
                             .top = options.top,
                             .memory_limit = memory_limit,
                             .threads = options.threads > 0 ? options.threads : count_cores().bound,
                             .prune = !options.exhaustive,
                             .progress = {}};
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal) {
    search.progress = show_progress;
  }
  const plan::SearchResult result = plan::search(context, space_of(options, context), search);
  if (terminal) {
    fmt::print(stderr, "\r{:60}\r", "");
  }
  const std::vector<plan::Finalist> finalists =
      plan::simulate_finalists(context, result.best, options.simulated, search.threads);
  fmt::print("{}", plan::describe(result, finalists, memory_limit));
  if (!options.json.empty()) {
    write_text_file(options.json, plan::to_json(result, finalists));
  }
  if (finalists.empty()) {
    return 1;
  }
  const plan::Strategy& best = finalists.front().candidate.strategy;
  if (!options.trace.empty()) {
    tracing::write_chrome_trace(options.trace, plan::simulate_step(context, best, true).traces);
  }
  emit(options, best, context);
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& app, Context& context) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command =
      app.add_subcommand("plan", "Find the fastest parallel strategy for a model on a cluster");
  add_plan_inputs(*command, options->inputs, true);
  constexpr std::int64_t kMostShown = 1000;
  whole_number(command->add_option("--top", options->top, "How many strategies to show"), 1, kMostShown)
      ->capture_default_str();
  number(command->add_option("--memory-limit", options->memory_limit_gib,
                             "GiB of a device; all of it if not given"),
         0.001, 1e6);
  whole_number(
      command->add_option("--simulate", options->simulated, "How many of them to simulate and order by it"),
      0, kMostShown)
      ->capture_default_str();
  command->add_option("--json", options->json, "Write the result to this file");
  command->add_option("--trace", options->trace,
                      "Write the simulated step of the best for Perfetto to this file");
  command->add_option("--explain", options->explain, "Cost this one: tp=8,pp=16,vpp=2,ep=32,...");
  one_of(command->add_option("--emit", options->emit,
                             "Print launch flags: of the best that the program can run, or of --explain's"),
         {"megatron", "mindspeed"});
  command->add_flag("--exhaustive", options->exhaustive, "Cost every strategy, pruning none");
  whole_number(
      command->add_option("--threads", options->threads, "Threads of the search; all cores if not given"), 1,
      kMostThreads);
  command->callback([options, &context] { context.exit_code = run_plan(*options); });
}

}  // namespace expedite::cli
