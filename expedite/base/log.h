// Logging: spdlog on standard error, each line naming the rank once there is more than one.
#pragma once

#include <spdlog/spdlog.h>

namespace expedite {

/// Sets up the default logger. With `ranks` > 1 every line starts with "[rank r]".
void initialize_logging(int rank, int ranks);

}  // namespace expedite
