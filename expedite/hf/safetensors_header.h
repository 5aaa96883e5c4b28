// The header of a safetensors file, parsed and checked; the reader's first step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "expedite/base/posix_file.h"
#include "expedite/hf/safetensors.h"

namespace expedite::hf {

struct SafetensorsHeader {
  struct Entry {
    StoredTensor tensor;
    std::int64_t begin = 0;  // bytes from data_begin
    std::int64_t end = 0;
  };
  std::int64_t data_begin = 0;  // bytes from the start of the file
  std::vector<Entry> entries;   // in the order of their bytes; together they cover the file to its end
  std::map<std::string, std::string> metadata;
};

/// Throws Error naming the file and the field; never trusts a number before it was compared with the file's
/// size.
[[nodiscard]] SafetensorsHeader read_safetensors_header(const PosixFile& file);

}  // namespace expedite::hf
