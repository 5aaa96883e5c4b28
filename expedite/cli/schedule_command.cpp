#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "expedite/base/error.h"
#include "expedite/base/log.h"
#include "expedite/cli/commands.h"
#include "expedite/cli/legal_values.h"
#include "expedite/cli/plan_inputs.h"
#include "expedite/cli/schedule_report.h"
#include "expedite/cli/text_file.h"
#include "expedite/cli/usage.h"
#include "expedite/cost/cluster.h"
#include "expedite/launch/launcher.h"
#include "expedite/plan/schedule_check.h"
#include "expedite/schedule/listing.h"
#include "expedite/train/prediction.h"

namespace expedite::cli {
namespace {

using schedule::Schedule;

struct ScheduleOptions {
  PlanInputs inputs;
  std::string strategy;
  std::string config;
  std::vector<std::string> overrides;
  std::int64_t ranks = 0;  // 0: as the configuration says
  std::int64_t nodes = 1;
  std::string rank = "0";
  std::string json;
  bool check = false;
  const CLI::Option* rank_option = nullptr;
};
constexpr const char* kAllRanks = "all";

/// Schedules to print, and all that are verified.
struct Shown {
  std::string title;
  std::string who;
  std::vector<Schedule> schedules;
  std::vector<Schedule> job;  // to verify; empty: those
};

Shown of_training(const ScheduleOptions& options) {
  const train::TrainConfig config = train::read_config(options.config, options.overrides);
  std::optional<model::StepCase> step;
  if (!options.inputs.cluster.empty()) {
    require_usage(options.ranks == 0 && options.nodes == 1,
                  "the ranks and nodes are those of --cluster {}: leave --ranks and --nodes away",
                  options.inputs.cluster);
    step = train::step_case(config, cost::read_cluster(options.inputs.cluster));
  } else {
    const std::int64_t ranks =
        options.ranks > 0 ? options.ranks : std::max<std::int64_t>(config.parallel.ranks, 1);
    require_usage(ranks % options.nodes == 0, "--nodes {}: {} ranks cannot be spread evenly over them",
                  options.nodes, ranks);
    const std::int64_t wanted = config.parallel.expert_parallel_size;
    const comm::GridLayout layout(static_cast<int>(ranks), static_cast<int>(wanted > 0 ? wanted : ranks));
    step = train::step_case(config, comm::even_placement(layout, static_cast<int>(ranks / options.nodes)));
  }
  Shown shown;
  shown.schedules = build_schedules(*step);
  const int ranks = step->ranks();
  const int nodes = step->placement.nodes();
  shown.who = fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
  shown.title = fmt::format(
      "{}: {} on {} node{}, expert parallel {}, schedule {}, {}, {} chunk{}", options.config, shown.who,
      nodes, nodes == 1 ? "" : "s", step->placement.layout.expert_parallel_size(), step->builder->name,
      name_of(step->plan.dispatcher), step->plan.chunking.chunks, step->plan.chunking.chunks == 1 ? "" : "s");
  return shown;
}

Shown of_strategy(const ScheduleOptions& options) {
  require_strategy_inputs(options.inputs, options.strategy, "a training run's is CONFIG");
  const ModelConfig model = architecture::load_model_config(options.inputs.model);
  const plan::CostContext context = make_context(options.inputs, model);
  const plan::Strategy strategy = legal_strategy(options.inputs, model, "--strategy", options.strategy);
  plan::StepSchedules built = plan::build_schedules(context, strategy, plan::piece_times(context, strategy));
  Shown shown;
  shown.job = plan::as_small_job(built);
  shown.schedules = std::move(built.schedules);
  shown.who = fmt::format("{} unlike ranks of {}", shown.schedules.size(), strategy.devices());
  shown.title = fmt::format("{}: {}", plan::to_string(strategy), shown.who);
  return shown;
}

std::vector<const Schedule*> chosen(const ScheduleOptions& options, const std::vector<Schedule>& schedules) {
  std::vector<const Schedule*> found;
  std::vector<std::string> ranks;
  for (const Schedule& each : schedules) {
    if (options.rank == kAllRanks || options.rank == std::to_string(each.rank)) {
      found.push_back(&each);
    }
    ranks.push_back(std::to_string(each.rank));
  }
  require_usage(!found.empty(), "--rank {}: there is no such rank; take all or one of {}", options.rank,
                fmt::join(ranks, ", "));
  return found;
}

int run_schedule(const ScheduleOptions& options) {
  initialize_logging(0, 1);
  const Shown shown = options.config.empty() ? of_strategy(options) : of_training(options);
  const std::vector<const Schedule*> ranks = chosen(options, shown.schedules);
  if (!options.check || options.rank_option->count() > 0) {
    fmt::print("{}\n", shown.title);
    for (const Schedule* each : ranks) {
      fmt::print("\n{}", listing(*each));
    }
  }
  if (!options.json.empty()) {
    write_text_file(options.json, schedules_json(ranks));
  }
  if (!options.check) {
    return kDone;
  }
  const ScheduleCheck check = check_schedules(shown.job.empty() ? shown.schedules : shown.job, shown.who);
  fmt::print("{}", check.text);
  return check.sound ? kDone : kFailed;
}

}  // namespace

void add_schedule_command(CLI::App& app, Context& context) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* command = app.add_subcommand(
      "schedule", "Print or verify the tasks of one training step, of a run or of a strategy");
  add_plan_inputs(*command, options->inputs, false);
  command->add_option("--strategy", options->strategy, "tp=8,pp=16,vpp=2,ep=32,...; what is not given is 1");
  const std::vector<CLI::Option*> of_strategies = command->get_options([](const CLI::Option* option) {
    return !option->check_name("--cluster") && !option->check_name("--help");
  });
  CLI::Option* const config = command->add_option(
      "CONFIG", options->config,
      "A configuration of `expedite train`; what it leaves to measurement (auto) is at its "
      "simplest, or as measured in --cluster FILE");
  for (CLI::Option* option : of_strategies) {
    config->excludes(option);
  }
  command->add_option("--set", options->overrides, "Override a key of the configuration: key.path=value")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false)
      ->needs(config);
  whole_number(command->add_option("--ranks", options->ranks, "Of the run"), 1, launch::kMostRanks)
      ->needs(config);
  whole_number(command->add_option("--nodes", options->nodes, "That its ranks are spread over evenly"), 1,
               launch::kMostRanks)
      ->needs(config)
      ->capture_default_str();
  options->rank_option = whole_number_or(command->add_option("--rank", options->rank, "Whose tasks to print"),
                                         0, std::int64_t{1} << 20, kAllRanks)
                             ->capture_default_str();
  command->add_option("--json", options->json, "Write the same to this file");
  command->add_flag("--check", options->check,
                    "Verify the schedules of all ranks, and print only with --rank; exit status 1: unsound");
  command->callback([options, &context] { context.exit_code = run_schedule(*options); });
}

}  // namespace expedite::cli
