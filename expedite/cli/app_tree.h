// The commands and options of the program as a tree to walk, for what is generated from them: help,
// completion, the manual page, near names.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace expedite::cli {

/// Those of a command that its help shows, in its order.
[[nodiscard]] std::vector<const CLI::App*> visible_commands(const CLI::App& command);
[[nodiscard]] std::vector<const CLI::Option*> visible_options(
    const CLI::App& command);  // without positionals
[[nodiscard]] std::vector<const CLI::Option*> visible_positionals(const CLI::App& command);

/// The command itself and all visible ones below it, each before its own.
[[nodiscard]] std::vector<const CLI::App*> with_descendants(const CLI::App& command);

/// "expedite bench layer".
[[nodiscard]] std::string full_name(const CLI::App& command);

/// The visible command of that name directly below; null when there is none.
[[nodiscard]] const CLI::App* find_command(const CLI::App& parent, const std::string& name);

/// What `NAME --help` prints, whichever command the line has named.
[[nodiscard]] std::string help_of(const CLI::App& command);

/// "--ranks", "--help", "-h".
[[nodiscard]] std::vector<std::string> spellings(const CLI::Option& option);

[[nodiscard]] bool takes_value(const CLI::Option& option);

/// The names that one_of() has given an option; empty for others.
[[nodiscard]] std::vector<std::string> choices(const CLI::Option& option);

}  // namespace expedite::cli
