#include <algorithm>
#include <memory>

#include "bench/layer.h"
#include "expedite/cli/bench_commands.h"
#include "expedite/cli/bf16_option.h"
#include "expedite/cli/job.h"
#include "expedite/cli/legal_values.h"
#include "expedite/cli/usage.h"
#include "expedite/comm/process_grid.h"
#include "expedite/model/engine.h"

namespace expedite::cli {
namespace {

using schedule::ChunkPipeline;

constexpr ChunkPipeline kPipelines[] = {ChunkPipeline::continuous, ChunkPipeline::pairwise,
                                        ChunkPipeline::none};
constexpr std::string_view kAutomatic = "auto";

struct RecomputeName {
  std::string_view name;
  schedule::MoeRecompute recompute;
};
constexpr RecomputeName kRecomputes[] = {{"no", schedule::MoeRecompute::none},
                                         {"yes", schedule::MoeRecompute::activation},
                                         {"full", schedule::MoeRecompute::full}};

/// As the command line gives them.
struct LayerOptions {
  bench::LayerBenchOptions bench;
  JobOptions job;
  std::string dtype = "bf16";
  std::vector<std::string> chunks = {"1", "2", "4"};
  std::vector<std::string> pipelines = {"continuous"};
  std::vector<std::string> dispatchers;
  std::vector<std::string> recompute = {"no"};
  std::string schedule = std::string(schedule::layer_builders().front().name);
};

std::vector<std::string> pipeline_names() {
  std::vector<std::string> names;
  for (const ChunkPipeline each : kPipelines) {
    names.emplace_back(name_of(each));
  }
  return names;
}

std::vector<std::string> dispatcher_choices() {
  std::vector<std::string> names = schedule::dispatcher_names();
  names.emplace_back(kAutomatic);
  return names;
}

void add_shape(CLI::App& command, LayerOptions& options) {
  bench::LayerBenchOptions& o = options.bench;
  const auto size = [&](const char* name, std::int64_t& value, std::int64_t most, const char* help) {
    whole_number(command.add_option(name, value, help), 1, most)->capture_default_str();
  };
  whole_number(command.add_option("--tokens", o.tokens, "Tokens per rank"), 0, kMostTokens)
      ->capture_default_str();
  size("--hidden", o.hidden, kMostHidden, "Hidden size, at least the number of experts");
  size("--experts", o.experts, kMostExperts, "Experts");
  size("--topk", o.topk, kMostTopk, "Experts per token");
  one_of(command.add_option("--dtype", options.dtype, "Of weights and activations"), {"bf16", "f32"})
      ->capture_default_str();
  number(command.add_option("--zipf", o.zipf, "Exponent of the experts' popularity; 0: even"), 0.0, 10.0)
      ->capture_default_str();
}

void add_contenders(CLI::App& command, LayerOptions& options) {
  bench::LayerBenchOptions& o = options.bench;
  constexpr std::int64_t kMostChunks = 1024;
  whole_number_or(command.add_option("--chunks", options.chunks, "Numbers of chunks, as in 1,2,4 or auto")
                      ->delimiter(','),
                  1, kMostChunks, std::string(kAutomatic))
      ->capture_default_str();
  one_of(
      command.add_option("--pipeline", options.pipelines, "How chunks overlap; or several")->delimiter(','),
      pipeline_names())
      ->capture_default_str();
  whole_number(
      command.add_option("--window", o.windows, "Chunks under way at once, of the continuous pipeline")
          ->delimiter(','),
      1, kMostChunks)
      ->capture_default_str();
  one_of(
      command.add_option("--dispatcher", options.dispatchers, "How tokens reach their experts; or several")
          ->delimiter(','),
      dispatcher_choices())
      ->capture_default_str();
}

void add_measurement(CLI::App& command, LayerOptions& options) {
  bench::LayerBenchOptions& o = options.bench;
  one_of(command.add_option("--schedule", options.schedule, "What builds the layer's tasks"),
         names_of(schedule::layer_builders()))
      ->capture_default_str();
  whole_number(command.add_option("--rounds", o.rounds, "Times that each contender has its turn"), 1,
               kMostRounds)
      ->capture_default_str();
  whole_number(command.add_option("--threads", o.threads, "Cores per rank; 0: those it owns"), 0,
               kMostThreads)
      ->capture_default_str();
  command.add_option("--cluster", o.cluster_path, "What expedite probe wrote, for the choices left to auto")
      ->check(CLI::Validator(CLI::ExistingFile).description(""));
  command.add_option("--json", o.json_path, "Write the results to this file too");
  command.add_option("--trace", o.trace_folder,
                     "Write a trace of each contender's round of median time into this folder");
  add_bf16_products_option(command);
  add_job_options(command, options.job);
}

/// From names to values.
void interpret(LayerOptions& options) {
  bench::LayerBenchOptions& o = options.bench;
  o.dtype = options.dtype == "f32" ? DType::f32 : DType::bf16;
  o.builder = find_builder(schedule::layer_builders(), options.schedule);
  o.chunks.clear();
  for (const std::string& count : options.chunks) {
    if (count == kAutomatic) {
      o.automatic_chunks = true;
    } else {
      o.chunks.push_back(std::stoi(count));
    }
  }
  o.pipelines.clear();
  for (const std::string& name : options.pipelines) {
    o.pipelines.push_back(
        *std::ranges::find(kPipelines, name, [](ChunkPipeline each) { return name_of(each); }));
  }
  o.dispatchers.clear();
  for (const std::string& name : options.dispatchers) {
    if (name == kAutomatic) {
      o.automatic = true;
    } else {
      o.dispatchers.push_back(schedule::parse_dispatcher(name).value());
    }
  }
  o.recompute.clear();
  for (const std::string& answer : options.recompute) {
    o.recompute.push_back(std::ranges::find(kRecomputes, answer, &RecomputeName::name)->recompute);
  }
  require_usage(o.topk <= o.experts, "--topk {} of --experts {}: a token can choose each expert once", o.topk,
                o.experts);
  require_usage(o.experts <= o.hidden,
                "--experts {} with --hidden {}: the benchmark's router wants a hidden size of "
                "at least the number of experts",
                o.experts, o.hidden);
}

void run_on_call(CLI::App& command, const std::shared_ptr<LayerOptions>& options, Context& context) {
  command.callback([options, &context] {
    interpret(*options);
    options->job.arguments = context.arguments;
    context.exit_code = run_job(options->job, [&](const comm::Communicator& world) {
      const comm::ProcessGrid grid(world, world.size());
      bench::LayerBenchOptions& o = options->bench;
      o.threads = o.threads > 0 ? o.threads : model::threads_per_rank(grid);
      return bench::run_layer_bench(o, grid);
    });
  });
}

}  // namespace

void add_bench_layer(CLI::App& bench, Context& context) {
  auto layer = std::make_shared<LayerOptions>();
  layer->dispatchers = {"alltoall"};
  CLI::App* command = bench.add_subcommand(
      "layer", "One MoE layer, forward and backward, against the floors of the same run");
  add_shape(*command, *layer);
  whole_number(command->add_option("--ffn", layer->bench.ffn, "FFN size of an expert"), 1, kMostFfn)
      ->capture_default_str();
  add_contenders(*command, *layer);
  one_of(command
             ->add_option(
                 "--recompute", layer->recompute,
                 "What experts compute again in backward: nothing (no), the activation (yes), gate/up too "
                 "(full), or several")
             ->delimiter(','),
         {"no", "yes", "full"})
      ->capture_default_str();
  add_measurement(*command, *layer);
  run_on_call(*command, layer, context);

  auto dispatch = std::make_shared<LayerOptions>();
  dispatch->dispatchers = dispatcher_choices();
  dispatch->bench.training = false;
  dispatch->bench.ffn = 16;       // experts that take next to no time
  dispatch->chunks = {"1", "4"};  // levels one after the other, and overlapped
  command =
      bench.add_subcommand("dispatch", "To the experts and back: a layer's forward pass with tiny experts");
  add_shape(*command, *dispatch);
  add_contenders(*command, *dispatch);
  add_measurement(*command, *dispatch);
  run_on_call(*command, dispatch, context);
}

}  // namespace expedite::cli
