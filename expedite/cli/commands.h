// The commands of the program, one source file each.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace expedite::cli {

/// What a command needs beyond its own options, and the exit status it leaves.
struct Context {
  std::vector<std::string> arguments;  // the program's, without its name
  int exit_code = 0;
};

/// All commands below, and what the program itself takes.
void add_everything(CLI::App& app, Context& context);

/// Parses the arguments and runs the command. The exit status; errors are one line on standard error.
[[nodiscard]] int run_program(const std::vector<std::string>& arguments);

void add_train_command(CLI::App& app, Context& context);
void add_eval_command(CLI::App& app, Context& context);
void add_export_command(CLI::App& app, Context& context);
void add_compare_command(CLI::App& app, Context& context);
void add_probe_command(CLI::App& app, Context& context);
void add_bench_command(CLI::App& app, Context& context);
void add_plan_command(CLI::App& app, Context& context);
void add_simulate_command(CLI::App& app, Context& context);
void add_schedule_command(CLI::App& app, Context& context);
void add_validate_command(CLI::App& app, Context& context);
void add_tokenize_command(CLI::App& app, Context& context);
void add_config_command(CLI::App& app, Context& context);
void add_help_command(CLI::App& app, Context& context);
void add_completion_command(CLI::App& app, Context& context);
/// Hidden: what `cmake --install` writes as expedite.1.
void add_man_page_command(CLI::App& app, Context& context);

}  // namespace expedite::cli
