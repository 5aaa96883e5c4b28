#include "expedite/cli/text_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "expedite/base/error.h"

namespace expedite::cli {

void write_text_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  require(!file.fail(), "{}: cannot write: {}", path, std::strerror(errno));
}

std::string read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.is_open(), "{}: cannot open: {}", path, std::strerror(errno));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  require(!file.bad(), "{}: cannot read: {}", path, std::strerror(errno));
  return text;
}

}  // namespace expedite::cli
