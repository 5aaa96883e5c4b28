#include <fmt/core.h>

#include <memory>

#include "expedite/cli/commands.h"
#include "expedite/cli/completion.h"
#include "expedite/cli/legal_values.h"
#include "expedite/cli/man_page.h"

namespace expedite::cli {

void add_completion_command(CLI::App& app, Context&) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for a shell");
  one_of(command->add_option("SHELL", *shell, "bash or zsh"), {"bash", "zsh"})->required();
  command->callback(
      [&app, shell] { fmt::print("{}", *shell == "bash" ? bash_completion(app) : zsh_completion(app)); });
}

void add_man_page_command(CLI::App& app, Context&) {
  CLI::App* command = app.add_subcommand("man-page", "Print the manual page, expedite.1")->group("");
  command->callback([&app] { fmt::print("{}", man_page(app)); });
}

}  // namespace expedite::cli
