// The whole of a text file.
#pragma once

#include <string>

namespace expedite {

/// Throws Error that begins with the path and says what the system said, of a folder that it is one.
[[nodiscard]] std::string read_text(const std::string& path);

}  // namespace expedite
