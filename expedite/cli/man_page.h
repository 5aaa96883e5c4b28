// The manual page, made from the program's own commands and options.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace expedite::cli {

/// expedite(1) in the man macros of roff.
[[nodiscard]] std::string man_page(const CLI::App& app);

}  // namespace expedite::cli
