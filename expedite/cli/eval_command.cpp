#include <fmt/core.h>

#include <memory>

#include "expedite/base/error.h"
#include "expedite/base/log.h"
#include "expedite/cli/training_job.h"
#include "expedite/train/preflight.h"
#include "expedite/train/trained_model.h"
#include "expedite/train/training.h"

namespace expedite::cli {
namespace {

struct EvalCommandOptions {
  std::string model;
  TrainingJobOptions job;
};

int evaluate(const train::TrainConfig& config, const comm::ProcessGrid& grid) {
  require(config.data.validation_fraction > 0.0,
          "data.validation_fraction = 0 leaves no text to measure on: --set data.validation_fraction=0.05");
  const train::TrainingText text(config, grid);
  train::Training training(config, text, grid, model::State::weights);
  try {
    const std::string weights = training.initialize();
    if (grid.rank() == 0) {
      spdlog::info("tokenizer: {}, {} ids; weights: {}", text.tokenizer_name, text.tokenizer->vocab_size(),
                   weights);
    }
    const std::optional<train::Validation> result = training.evaluate(0);
    require(result.has_value(), "the text is too short to be split: there is no validation text");
    if (grid.rank() == 0) {
      fmt::print("validation           {:.3f} bits/byte\n", result->bits_per_byte);
      fmt::print("loss                 {:.4f} nats/token\n", result->loss);
      fmt::print("measured on          {} tokens, {} bytes\n", result->tokens, result->bytes);
    }
  } catch (const std::exception& error) {
    if (grid.size() > 1) {
      training.fail_job(error.what());
    }
    throw;
  }
  return 0;
}

int run_eval(const EvalCommandOptions& options, const Context& context) {
  // The ranks need not read every byte again.
  const train::Check check = options.job.checked ? train::Check::sizes : train::Check::checksums;
  return run_training_job(
      options.job, context,
      {.read = [&] { return train::config_of_model(options.model, options.job.overrides, check); },
       .check =
           [](const train::TrainConfig& config, const comm::Placement& placement,
              std::span<const int> ranks) {
             train::check_config(config, placement, ranks, model::State::weights);
           },
       .run = evaluate});
}

}  // namespace

void add_eval_command(CLI::App& app, Context& context) {
  auto options = std::make_shared<EvalCommandOptions>();
  CLI::App* command = app.add_subcommand("eval", "Measure a model on the validation text, and nothing else");
  command
      ->add_option("MODEL", options->model,
                   "The folder of a run or of one of its checkpoints; a configuration, whose weights are "
                   "loaded (model.load_weights) or its run's newest; or a Hugging Face folder, with --set "
                   "data.path=...")
      ->required();
  add_training_job_options(*command, options->job);
  command->callback([options, &context] { context.exit_code = run_eval(*options, context); });
}

}  // namespace expedite::cli
