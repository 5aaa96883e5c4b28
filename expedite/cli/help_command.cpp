#include <fmt/core.h>

#include <memory>

#include "expedite/cli/app_tree.h"
#include "expedite/cli/commands.h"
#include "expedite/cli/usage.h"

namespace expedite::cli {
namespace {

void print_help(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    const CLI::App* next = find_command(*command, word);
    require_usage(next != nullptr, "{}", unknown_command(*command, word));
    command = next;
  }
  fmt::print("{}", help_of(*command));
}

}  // namespace

void add_help_command(CLI::App& app, Context& context) {
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("help", "Show the help of the program or of a command");
  command->add_option("COMMAND", *words, "As in `expedite help bench layer`");
  command->callback([&app, words, &context] {
    print_help(app, *words);
    context.exit_code = kDone;
  });
}

}  // namespace expedite::cli
