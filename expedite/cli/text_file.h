// Files that a command writes whole.
#pragma once

#include <string>

namespace expedite::cli {

/// Throws Error naming the path and what the system said.
void write_text_file(const std::string& path, const std::string& text);

}  // namespace expedite::cli
