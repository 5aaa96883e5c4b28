#include <fmt/core.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "expedite/cli/commands.h"
#include "expedite/cli/job.h"
#include "expedite/cli/legal_values.h"
#include "expedite/comm/process_grid.h"
#include "expedite/train/baseline_comparison.h"
#include "expedite/train/comparison_table.h"
#include "expedite/train/launcher.h"
#include "expedite/train/progress.h"
#include "expedite/train/stop_signal.h"
#include "expedite/train/trainer.h"

namespace expedite::cli {
namespace {

struct TrainCommandOptions {
  std::string config;
  JobOptions job;
  std::vector<std::string> overrides;
  bool resume = false;
  std::int64_t compare_baseline = 0;
  int live_width = 0;
};

std::string against(std::optional<double> ours, const char* name, std::optional<double> theirs) {
  if (!ours || !theirs) {
    return {};
  }
  return fmt::format("  {:<20} {:.3f} bits/byte  (ours is {} by {:.3f})\n", name, *theirs,
                     *ours < *theirs ? "below" : "ABOVE", std::abs(*ours - *theirs));
}

void print_summary(const train::TrainConfig& config, const train::TrainSummary& summary) {
  fmt::print("{} after {} of {} steps, {:.0f} s\n", summary.stopped ? "stopped" : "done", summary.steps,
             config.train.steps, summary.seconds);
  if (summary.validation_bits_per_byte) {
    fmt::print("  {:<20} {:.3f} bits/byte\n", "validation", *summary.validation_bits_per_byte);
    fmt::print("{}{}",
               against(summary.validation_bits_per_byte, "order-2 Markov", summary.markov2_bits_per_byte),
               against(summary.validation_bits_per_byte, "gzip -9", summary.gzip9_bits_per_byte));
  }
  if (!summary.checkpoint.empty()) {
    fmt::print("  checkpoint  {}\n", summary.checkpoint.string());
  }
  fmt::print("  metrics     {}\n", (config.run_dir() / "metrics.jsonl").string());
  if (std::filesystem::exists(config.run_dir() / "trace.json")) {
    fmt::print("  trace       {}  (open at https://ui.perfetto.dev)\n",
               (config.run_dir() / "trace.json").string());
  }
  if (summary.stopped) {
    fmt::print("  --resume continues this run\n");
  }
}

int run_train(const TrainCommandOptions& options, const Context& context) {
  if (train::detect_mpi_job()) {
    train::ignore_repeated_stops();
  }
  // Before any rank starts, so that a mistake is told once.
  const train::TrainConfig config = train::read_config(options.config, options.overrides);
  const auto group_size = [&config](int ranks) {
    const std::int64_t size = config.parallel.expert_parallel_size;
    return size > 0 ? static_cast<int>(size) : ranks;
  };
  if (const auto ranks = static_cast<int>(ranks_asked_for(options.job)); ranks > 0) {
    static_cast<void>(comm::GridLayout(ranks, group_size(ranks)));
  }
  JobOptions job = options.job;
  job.arguments = context.arguments;
  const std::optional<int> width = train::terminal_width(stdout);
  if (width && job.lab.empty()) {  // in a lab this program runs again, with the same terminal
    job.arguments.push_back(fmt::format("--live-width={}", *width));
  }
  return run_job(job, [&](const comm::Communicator& world) {
    const comm::ProcessGrid grid(world, group_size(world.size()));
    train::TrainOptions train_options = {.resume = options.resume};
    if (options.live_width > 0) {
      train_options.live_width = options.live_width;
    } else if (!train::detect_mpi_job()) {  // under mpirun a rank's output always looks like a terminal
      train_options.live_width = train::terminal_width(stdout);
    }
    const train::TrainSummary summary = train::train(config, grid, train_options);
    if (world.rank() == 0) {
      print_summary(config, summary);
    }
    if (options.compare_baseline == 0 || summary.stopped) {
      return 0;
    }
    const train::Comparison comparison = train::compare_with_baseline(
        config, grid, {.steps = options.compare_baseline, .live_width = train_options.live_width});
    if (world.rank() == 0) {
      fmt::print("{}", train::comparison_table(comparison));
    }
    return train::losses_agree(comparison) ? 0 : 1;
  });
}

}  // namespace

void add_train_command(CLI::App& app, Context& context) {
  auto options = std::make_shared<TrainCommandOptions>();
  CLI::App* command = app.add_subcommand("train", "Train a model; see docs/configuration.md");
  command->add_option("CONFIG", options->config, "Configuration, YAML")->required();
  add_job_options(*command, options->job);
  command->add_option("--set", options->overrides, "Override a key of the configuration: key.path=value")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  command->add_flag("--resume", options->resume, "Continue the run from its newest valid checkpoint");
  whole_number(
      command->add_option(
          "--compare-baseline", options->compare_baseline,
          "Afterwards train two new models for this many steps by turns, one as configured and one "
          "without chunks, overlap and a better dispatcher than alltoall, and compare them in a table"),
      1, 1'000'000);
  whole_number(command->add_option("--live-width", options->live_width), 1, 10'000)
      ->group("");  // from the launcher: its terminal's columns
  command->callback([options, &context] { context.exit_code = run_train(*options, context); });
}

}  // namespace expedite::cli
