#include "expedite/base/read_text.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "expedite/base/error.h"

namespace expedite {

std::string read_text(const std::string& path) {
  std::error_code ignored;
  require(!std::filesystem::is_directory(path, ignored), "{}: is a folder; expected a file", path);
  std::ifstream file(path, std::ios::binary);
  require(file.is_open(), "{}: cannot open: {}", path, std::strerror(errno));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  require(!file.bad(), "{}: cannot read: {}", path, std::strerror(errno));
  return text;
}

}  // namespace expedite
