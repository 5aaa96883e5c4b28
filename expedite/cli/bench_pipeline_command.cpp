#include <memory>

#include "bench/pipeline.h"
#include "expedite/base/error.h"
#include "expedite/cli/bench_commands.h"
#include "expedite/cli/legal_values.h"

namespace expedite::cli {
namespace {

struct PipelineOptions {
  bench::PipelineBenchOptions bench;
  std::vector<std::string> schedules = schedule::pipeline_kind_names();
  std::string recompute = "none";
};

schedule::LayerRecompute parse_recompute(const std::string& name) {
  for (const auto recompute : {schedule::LayerRecompute::none, schedule::LayerRecompute::attention}) {
    if (name_of(recompute) == name) {
      return recompute;
    }
  }
  return schedule::LayerRecompute::full;
}

}  // namespace

void add_bench_pipeline(CLI::App& bench, Context& context) {
  auto options = std::make_shared<PipelineOptions>();
  bench::PipelineModel& model = options->bench.model;
  CLI::App* command = bench.add_subcommand(
      "pipeline", "Pipeline schedules side by side, simulated with layers of given times");
  one_of(command->add_option("--schedules", options->schedules, "Which, separated by commas")->delimiter(','),
         schedule::pipeline_kind_names())
      ->capture_default_str();
  constexpr std::int64_t kMost = 4096;  // of anything: a schedule of all of it can still be built
  const auto size = [&](const char* name, int& value, const char* help) {
    whole_number(command->add_option(name, value, help), 1, kMost)->capture_default_str();
  };
  const auto count = [&](const char* name, int& value, const char* help) {
    whole_number(command->add_option(name, value, help), 0, kMost)->capture_default_str();
  };
  constexpr double kShortest = 1e-6;
  constexpr double kLongest = 1e6;
  const auto time = [&](const char* name, double& value, double shortest, const char* help) {
    number(command->add_option(name, value, help), shortest, kLongest)->capture_default_str();
  };
  size("--stages", model.stages, "Pipeline stages");
  size("--virtual-stages", model.virtual_stages, "Per stage, where the schedule has them");
  size("--micro-batches", model.micro_batches, "Of a step");
  size("--layers", model.layers, "Layers of the model");
  count("--dense-layers", model.dense_layers, "The first ones of them, without experts");
  count("--mtp-layers", model.mtp_layers, "Further ones, of multi-token prediction");
  size("--expert-parallel-size", model.expert_parallel_size, "Ranks of a group");
  size("--ranks-per-node", model.ranks_per_node, "Of an expert-parallel group");
  size("--replicas", model.replicas, "Expert-parallel groups of a stage");
  size("--chunks", model.chunks, "Of an MoE layer, where a micro-batch has no partner to hide its exchanges");
  number(command->add_option("--compute-to-communication", model.compute_to_communication,
                             "Of an MoE layer: seconds of compute over seconds of its exchanges"),
         kShortest, kLongest)
      ->capture_default_str();
  one_of(command->add_option("--recompute", options->recompute, "What backward computes again"),
         {"none", "attention", "full"})
      ->capture_default_str();
  command->add_flag("--contention", options->bench.contention, "What is under way on a link shares it");
  command->add_flag("--coarse", options->bench.coarse,
                    "Equal stages instead of layers, one task per virtual stage, micro-batch and pass");
  time("--forward", options->bench.stage_ms.forward, kShortest, "With --coarse: ms of a stage's forward, F");
  time("--input-grad", options->bench.stage_ms.input_grad, 0.0,
       "With --coarse: of its input gradients, B - W");
  time("--weight-grad", options->bench.stage_ms.weight_grad, 0.0,
       "With --coarse: of its weight gradients, W");
  time("--pair", options->bench.stage_ms.pair, 0.0,
       "With --coarse: of a forward and a backward together; 0: F + B");
  command->add_option("--trace", options->bench.trace_folder,
                      "Write SCHEDULE.json for Perfetto to this folder");
  command->add_option("--json", options->bench.json_path, "Write the results to this file too");
  command->callback([options, &context] {
    for (const std::string& name : options->schedules) {
      options->bench.kinds.push_back(*schedule::parse_pipeline_kind(name));
    }
    options->bench.model.recompute = parse_recompute(options->recompute);
    if (!options->bench.trace_folder.empty()) {
      std::filesystem::create_directories(options->bench.trace_folder);
    }
    context.exit_code = bench::run_pipeline_bench(options->bench);
  });
}

}  // namespace expedite::cli
