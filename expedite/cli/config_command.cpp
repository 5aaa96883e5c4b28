#include <fmt/core.h>

#include "expedite/cli/commands.h"
#include "expedite/train/config.h"

namespace expedite::cli {

void add_config_command(CLI::App& app, Context&) {
  CLI::App* command =
      app.add_subcommand("config", "Print every key of a training configuration, as Markdown");
  command->callback([] { fmt::print("{}", train::config_reference()); });
}

}  // namespace expedite::cli
