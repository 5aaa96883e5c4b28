#include "expedite/cli/simulate_training.h"

#include <fmt/core.h>

#include <optional>
#include <utility>
#include <vector>

#include "expedite/base/error.h"
#include "expedite/cli/text_file.h"
#include "expedite/cost/cluster.h"
#include "expedite/tracing/trace_json.h"
#include "expedite/train/measured_run.h"
#include "expedite/train/prediction.h"
#include "expedite/train/prediction_table.h"

namespace expedite::cli {
namespace {

/// A training run is predicted from the kernels that it calls, which data sheets do not have.
cost::Cluster read_measured_cluster(const std::string& cluster) {
  cost::Cluster read = cost::read_cluster(cluster);
  require(!read.devices.front().matmul.empty(),
          "--cluster {} holds no measured products (matmul: []), as of a data sheet; a training run's CONFIG "
          "needs "
          "what `expedite probe --ranks N --out FILE` has measured",
          cluster);
  return read;
}

}  // namespace

void add_simulate_training_options(CLI::App& command, SimulateTraining& options) {
  // A configuration says what it trains, and how; only the cluster comes from elsewhere.
  const std::vector<CLI::Option*> of_strategies = command.get_options([](const CLI::Option* option) {
    return !option->check_name("--cluster") && !option->check_name("--help");
  });
  CLI::Option* const config = command.add_option(
      "CONFIG", options.config,
      "A configuration of `expedite train`, whose step is simulated on the cluster that --cluster "
      "FILE says `expedite probe` has measured");
  for (CLI::Option* option : of_strategies) {
    config->excludes(option);
  }
  command.add_option("--set", options.overrides, "Override a key of the configuration: key.path=value")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false)
      ->needs(config);
  command
      .add_option("--measured", options.measured,
                  "The folder of a run of CONFIG: take its experts' loads, and compare")
      ->needs(config);
}

int simulate_training(const SimulateTraining& options, const std::string& cluster_file) {
  const train::TrainConfig config = train::read_config(options.config, options.overrides);
  const cost::Cluster cluster = read_measured_cluster(cluster_file);
  model::StepCase step = train::step_case(config, cluster);
  std::vector<train::Prediction> predictions;
  std::optional<train::StepTimes> run;
  if (!options.measured.empty()) {
    for (train::ExpertLoads& loads : train::measured_loads(options.measured)) {
      step.expert_loads = std::move(loads);
      predictions.push_back(train::predict(step, cluster));
    }
  }
  if (predictions.empty()) {
    predictions.push_back(train::predict(step, cluster));
  }
  if (!options.measured.empty()) {
    run = train::read_run(options.measured, predictions.front().schedules);
  }
  const train::StepTimes times = train::step_times(predictions);
  const std::int64_t tokens = predictions.front().tokens;
  fmt::print("{} on {}: {} node{} of {} rank{}, expert parallel {}, {}, {} chunk{}\n\n", options.config,
             cluster.name, cluster.nodes, cluster.nodes == 1 ? "" : "s", cluster.ranks_per_node,
             cluster.ranks_per_node == 1 ? "" : "s", step.placement.layout.expert_parallel_size(),
             name_of(step.plan.dispatcher), step.plan.chunking.chunks,
             step.plan.chunking.chunks == 1 ? "" : "s");
  fmt::print("{}", train::prediction_table(times, tokens, run));
  if (!options.trace.empty()) {
    tracing::write_chrome_trace(options.trace, cost::traces_of(predictions.front().simulation));
    fmt::print("\nwrote {}\n", options.trace);
  }
  if (!options.json.empty()) {
    constexpr int kIndent = 2;
    write_text_file(options.json, train::prediction_json(times, tokens, run).dump(kIndent) + "\n");
  }
  return 0;
}

}  // namespace expedite::cli
