#include "expedite/base/installation.h"

#include <algorithm>
#include <system_error>

#include "expedite/base/error.h"

namespace expedite {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// EXPEDITE_SHARE and EXPEDITE_LIBEXEC are relative to the folder of the installed program.
fs::path share_folder() {
  return (this_program().parent_path() / EXPEDITE_SHARE).lexically_normal();
}

}  // namespace

fs::path this_program() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  require(!error, "cannot find this program's file through /proc/self/exe: {}", error.message());
  return program;
}

fs::path program_tool(const std::string& name) {
  const fs::path folder = this_program().parent_path();
  const fs::path beside = folder / name;
  return is_there(beside) ? beside : (folder / EXPEDITE_LIBEXEC / name).lexically_normal();
}

fs::path with_installed(const fs::path& path) {
  if (path.empty() || path.is_absolute() || is_there(path)) {
    return path;
  }
  for (const fs::path& candidate : {share_folder() / path, share_folder() / "configs" / path}) {
    if (is_there(candidate)) {
      return candidate;
    }
  }
  return path;
}

std::vector<std::string> installed_configs() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(share_folder() / "configs", error)) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace expedite
