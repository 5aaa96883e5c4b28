// Completion scripts for shells, made from the program's own commands and options.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace expedite::cli {

[[nodiscard]] std::string bash_completion(const CLI::App& app);
[[nodiscard]] std::string zsh_completion(const CLI::App& app);

}  // namespace expedite::cli
