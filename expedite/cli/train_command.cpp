#include <fmt/core.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "expedite/cli/legal_values.h"
#include "expedite/cli/training_job.h"
#include "expedite/launch/launcher.h"
#include "expedite/train/baseline_comparison.h"
#include "expedite/train/comparison_table.h"
#include "expedite/train/preflight.h"
#include "expedite/train/progress.h"
#include "expedite/train/run_lock.h"
#include "expedite/train/trainer.h"

namespace expedite::cli {
namespace {

struct TrainCommandOptions {
  std::string config;
  TrainingJobOptions job;
  std::string resume;  // one of the words below; empty: not given
  std::int64_t compare_baseline = 0;
};
constexpr const char* kResume = "true";  // CLI11's word for a flag without one
constexpr const char* kResumeIfThereIs = "auto";

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

train::Resume resume_of(const std::string& word) {
  if (word == kResumeIfThereIs) {
    return train::Resume::automatic;
  }
  return word.empty() ? train::Resume::no : train::Resume::yes;
}

/// The terminal's width to redraw the progress line in.
std::optional<int> live_width(const TrainingJobOptions& options) {
  if (options.live_width > 0) {
    return options.live_width;
  }
  // Under mpirun a rank's output always looks like a terminal.
  return launch::detect_mpi_job() ? std::nullopt : train::terminal_width(stdout);
}

int train_and_compare(const TrainCommandOptions& options, const train::TrainConfig& config,
                      const comm::ProcessGrid& grid) {
  const bool leads = grid.rank() == 0;
  std::optional<train::RunLock> lock;
  if (leads) {
    lock.emplace(config.run_dir());
  }
  const std::optional<int> width = live_width(options.job);
  const train::TrainSummary summary =
      train::train(config, grid, {.resume = resume_of(options.resume), .live_width = width});
  if (leads) {
    print_summary(config, summary);
  }
  if (options.compare_baseline == 0 || summary.stopped) {
    return 0;
  }
  const train::Comparison comparison =
      train::compare_with_baseline(config, grid, {.steps = options.compare_baseline, .live_width = width});
  if (leads) {
    fmt::print("{}", train::comparison_table(comparison));
  }
  return train::losses_agree(comparison) ? 0 : 1;
}

int run_train(const TrainCommandOptions& options, const Context& context) {
  return run_training_job(
      options.job, context,
      {.read = [&] { return train::read_config(options.config, options.job.overrides); },
       .check =
           [&](const train::TrainConfig& config, const comm::Placement& placement,
               std::span<const int> ranks) {
             train::check_config(config, placement, ranks, model::State::training);
             train::check_run_folder(config, resume_of(options.resume));
           },
       .run = [&](const train::TrainConfig& config,
                  const comm::ProcessGrid& grid) { return train_and_compare(options, config, grid); }});
}

}  // namespace

void add_train_command(CLI::App& app, Context& context) {
  auto options = std::make_shared<TrainCommandOptions>();
  CLI::App* command = app.add_subcommand("train", "Train a model; see docs/configuration.md");
  command->add_option("CONFIG", options->config, "Configuration, YAML")->required();
  add_training_job_options(*command, options->job);
  command
      ->add_flag("--resume", options->resume,
                 "Continue the run from its newest valid checkpoint, of which there must be one; "
                 "--resume=auto: start the run if there is none")
      ->check([](const std::string& word) {
        return word == kResume || word == kResumeIfThereIs ? std::string()
                                                           : "expected --resume or --resume=auto";
      });
  whole_number(
      command->add_option(
          "--compare-baseline", options->compare_baseline,
          "Afterwards train two new models for this many steps by turns, one as configured and one "
          "without chunks, overlap and a better dispatcher than alltoall, and compare them in a table"),
      1, 1'000'000);
  command->callback([options, &context] { context.exit_code = run_train(*options, context); });
}

}  // namespace expedite::cli
