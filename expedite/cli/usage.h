// What is wrong with a command line, in one line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "expedite/base/error.h"

namespace expedite::cli {

/// Exit statuses of the program; docs/cli.md. A signal n makes 128 + n.
enum ExitStatus : int { kDone = 0, kFailed = 1, kUsage = 2 };

/// Options that contradict each other.
class UsageError : public Error {
 public:
  using Error::Error;
};

template <typename... Args>
void require_usage(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) {
    throw UsageError(fmt::format(format, std::forward<Args>(args)...));
  }
}

/// "expedite train: --ranks: expected a whole number from 1 to 1024, not 0".
[[nodiscard]] std::string usage_message(const CLI::App& app, const CLI::ParseError& error);

/// "'fly' is not a command; the nearest is plan".
[[nodiscard]] std::string unknown_command(const CLI::App& parent, const std::string& name);

/// The command that the line names so far.
[[nodiscard]] const CLI::App& named_command(const CLI::App& app);

}  // namespace expedite::cli
