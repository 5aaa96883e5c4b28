// The program `expedite`.
#include <fmt/core.h>

#include <cstdio>
#include <exception>

#include "expedite/cli/commands.h"

int main(int argc, char** argv) {
  expedite::cli::Context context;
  context.arguments.assign(argv + 1, argv + argc);
  CLI::App app("Expedite: mixture-of-experts training in which no device waits", "expedite");
  app.require_subcommand(1);
  app.set_version_flag("--version", EXPEDITE_VERSION);
  expedite::cli::add_train_command(app, context);
  expedite::cli::add_compare_command(app, context);
  expedite::cli::add_probe_command(app, context);
  expedite::cli::add_bench_command(app, context);
  expedite::cli::add_plan_command(app, context);
  expedite::cli::add_simulate_command(app, context);
  expedite::cli::add_validate_command(app, context);
  expedite::cli::add_config_command(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "expedite: {}\n", error.what());
    return 1;
  }
  return context.exit_code;
}
