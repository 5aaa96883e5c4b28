#include <fmt/core.h>

#include <memory>

#include "expedite/base/installation.h"
#include "expedite/cli/commands.h"
#include "expedite/cli/text_file.h"
#include "expedite/plan/validate.h"

namespace expedite::cli {
namespace {

struct ValidateOptions {
  std::string runs;
  std::string json;
  std::string constants;
  std::string salt;
};

void run_validate(const ValidateOptions& options) {
  const plan::Validation validation =
      plan::validate(plan::read_runs(with_installed(options.runs)), options.salt);
  fmt::print("{}", plan::describe(validation));
  if (!options.json.empty()) {
    write_text_file(options.json, plan::to_json(validation));
  }
  if (!options.constants.empty()) {
    write_text_file(options.constants, plan::constants_source(validation.calibration));
  }
}

}  // namespace

void add_validate_command(CLI::App& app, Context& context) {
  auto options = std::make_shared<ValidateOptions>();
  CLI::App* command = app.add_subcommand(
      "validate", "Fit the planner's constants to half of published runs and predict all of them");
  command->add_option("RUNS", options->runs, "A table of measured runs (CSV)")->required();
  command->add_option("--json", options->json, "Write one object per run: id, metric, published, predicted");
  command->add_option("--constants", options->constants, "Write what was fitted, as the source carries it");
  command->add_option("--salt", options->salt,
                      "Goes before ids in the hash that chooses the half: another half");
  command->callback([options, &context] {
    run_validate(*options);
    context.exit_code = 0;
  });
}

}  // namespace expedite::cli
