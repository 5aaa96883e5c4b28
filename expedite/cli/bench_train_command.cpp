#include <memory>

#include "bench/train.h"
#include "expedite/cli/bench_commands.h"
#include "expedite/cli/bf16_option.h"
#include "expedite/cli/job.h"
#include "expedite/cli/legal_values.h"
#include "expedite/cli/usage.h"
#include "expedite/comm/process_grid.h"
#include "expedite/launch/launcher.h"

namespace expedite::cli {
namespace {

struct TrainOptions {
  bench::TrainBenchOptions bench;
  std::string dtype = "bf16";
  JobOptions job;
  std::int64_t expert_parallel_size = 0;
};

}  // namespace

void add_bench_train(CLI::App& bench, Context& context) {
  auto options = std::make_shared<TrainOptions>();
  bench::TrainBenchOptions& o = options->bench;
  CLI::App* command = bench.add_subcommand(
      "train", "Model FLOP utilisation of training steps against the matmul peak of the same run");
  const auto size = [&](const char* name, std::int64_t& value, std::int64_t most, const char* help) {
    whole_number(command->add_option(name, value, help), 1, most)->capture_default_str();
  };
  size("--tokens", o.tokens, kMostTokens, "Tokens per rank");
  size("--hidden", o.hidden, kMostHidden, "Hidden size");
  size("--ffn", o.ffn, kMostFfn, "FFN size of an expert");
  size("--experts", o.experts, kMostExperts, "Experts");
  size("--topk", o.topk, kMostTopk, "Experts per token");
  size("--layers", o.layers, kMostLayers, "Layers");
  size("--heads", o.heads, kMostHeads, "Query heads");
  size("--kv-heads", o.kv_heads, kMostHeads, "Key and value heads");
  size("--vocab", o.vocab, kMostVocab, "Vocabulary");
  whole_number(command->add_option("--steps", o.steps, "Measured steps"), 1, kMostRounds)
      ->capture_default_str();
  whole_number(command->add_option("--threads", o.threads, "Cores per rank"), 1, kMostThreads)
      ->capture_default_str();
  one_of(command->add_option("--dtype", options->dtype, "Of weights and activations"), {"bf16", "f32"})
      ->capture_default_str();
  command->add_option("--json", o.json_path, "Write the result to this file too");
  add_bf16_products_option(*command);
  add_job_options(*command, options->job);
  whole_number(command->add_option("--expert-parallel-size", options->expert_parallel_size,
                                   "Ranks of a group; all if not given"),
               1, launch::kMostRanks);
  command->callback([options, &context] {
    options->bench.dtype = options->dtype == "f32" ? DType::f32 : DType::bf16;
    require_usage(options->bench.hidden % options->bench.heads == 0,
                  "--hidden {} is not a multiple of --heads {}", options->bench.hidden, options->bench.heads);
    options->job.arguments = context.arguments;
    context.exit_code = run_job(options->job, [&](const comm::Communicator& world) {
      const auto ep = static_cast<int>(options->expert_parallel_size);
      return bench::run_train_bench(options->bench, comm::ProcessGrid(world, ep > 0 ? ep : world.size()));
    });
  });
}

}  // namespace expedite::cli
