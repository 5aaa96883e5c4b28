#include <fmt/core.h>

#include <memory>

#include "expedite/base/log.h"
#include "expedite/cli/commands.h"
#include "expedite/train/trained_model.h"

namespace expedite::cli {
namespace {

struct ExportCommandOptions {
  std::string model;
  std::string out;
};

int run_export(const ExportCommandOptions& options) {
  initialize_logging(0, 1);
  const train::Checkpoint checkpoint = train::find_checkpoint(options.model);
  train::export_model(checkpoint, options.out);
  fmt::print("{}: the model of {}, after {} steps\n", options.out, checkpoint.path.string(), checkpoint.step);
  return 0;
}

}  // namespace

void add_export_command(CLI::App& app, Context& context) {
  auto options = std::make_shared<ExportCommandOptions>();
  CLI::App* command = app.add_subcommand(
      "export", "Write a trained model as a Hugging Face folder, without the optimizer's state");
  command->add_option("RUN", options->model, "The folder of a run, or of one of its checkpoints")->required();
  command->add_option("OUT", options->out, "A folder that is not there yet, or empty")->required();
  command->callback([options, &context] { context.exit_code = run_export(*options); });
}

}  // namespace expedite::cli
