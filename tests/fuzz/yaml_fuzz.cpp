// libFuzzer: any bytes as a cluster's YAML are a cluster or an Error.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/parsers.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  expedite::fuzz::read_or_refuse(expedite::fuzz::use_yaml, {reinterpret_cast<const char*>(data), size});
  return 0;
}
