#include "expedite/cli/bench_commands.h"

namespace expedite::cli {

void add_bench_command(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("bench", "Measure this machine");
  command->require_subcommand(0, 1);
  add_bench_kernels(*command, context);
  add_bench_layer(*command, context);
  add_bench_pipeline(*command, context);
  add_bench_train(*command, context);
}

}  // namespace expedite::cli
