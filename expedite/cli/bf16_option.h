// The option --bf16-products of commands that measure or compare.
#pragma once

#include <CLI/CLI.hpp>

namespace expedite::cli {

/// As runtime.bf16_products of a configuration: takes effect for the whole process when it is read.
void add_bf16_products_option(CLI::App& command);

}  // namespace expedite::cli
