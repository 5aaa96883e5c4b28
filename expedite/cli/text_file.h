// Files that a command writes whole.
#pragma once

#include <string>

namespace expedite::cli {

/// Throws Error naming the path and what the system said.
void write_text_file(const std::string& path, const std::string& text);
[[nodiscard]] std::string read_text_file(const std::string& path);

}  // namespace expedite::cli
