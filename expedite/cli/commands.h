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

void add_train_command(CLI::App& app, Context& context);
void add_compare_command(CLI::App& app, Context& context);
void add_probe_command(CLI::App& app, Context& context);
void add_bench_command(CLI::App& app, Context& context);
void add_plan_command(CLI::App& app, Context& context);
void add_simulate_command(CLI::App& app, Context& context);
void add_validate_command(CLI::App& app, Context& context);
void add_config_command(CLI::App& app, Context& context);

}  // namespace expedite::cli
