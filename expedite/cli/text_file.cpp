#include "expedite/cli/text_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "expedite/base/error.h"

namespace expedite::cli {

void write_text_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  require(!file.fail(), "{}: cannot write: {}", path, std::strerror(errno));
}

}  // namespace expedite::cli
