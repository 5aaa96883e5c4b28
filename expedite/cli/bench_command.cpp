#include "expedite/cli/commands.h"

namespace expedite::cli {

void add_bench_command(CLI::App& app, Context&) {
  CLI::App* command = app.add_subcommand("bench", "Measure this machine");
  command->require_subcommand(1);
}

}  // namespace expedite::cli
