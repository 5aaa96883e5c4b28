// Logging: spdlog on standard error, each line naming the rank once there is more than one.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace expedite {

/// Sets up the default logger. With `ranks` > 1 every line starts with "[rank r]".
void initialize_logging(int rank, int ranks);

/// A warning that the process gives once, however often what it warns of is met. In a job of several ranks,
/// call it on one.
void warn_once(const std::string& text);

}  // namespace expedite
