// What this program is: for reports of bugs and of measurements.
#pragma once

#include <string>

namespace expedite::cli {

/// "expedite 0.1.0", then the commit, the compiler, the libraries and what kernels find in this CPU, a line
/// each.
[[nodiscard]] std::string version_text();

/// "0.1.0".
[[nodiscard]] std::string version_number();

}  // namespace expedite::cli
