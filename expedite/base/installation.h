// Where the files lie that belong to the program: beside it in a build folder, in its own folders of a prefix
// once it is installed. Everything is found from the program's own place, so that a prefix may be moved.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace expedite {

/// The file that this process runs. Throws Error when the kernel does not tell.
[[nodiscard]] std::filesystem::path this_program();

/// A script of tools/, such as "lab": beside the program, or in PREFIX/libexec/expedite. The latter where
/// neither is there, for the message.
[[nodiscard]] std::filesystem::path program_tool(const std::string& name);

/// `path` as it is where it exists or is absolute; else the file of that name that was installed with the
/// program (PREFIX/share/expedite), with or without its folder; else `path`.
[[nodiscard]] std::filesystem::path with_installed(const std::filesystem::path& path);

/// The configurations that were installed with the program, as with_installed() takes them.
[[nodiscard]] std::vector<std::string> installed_configs();

}  // namespace expedite
