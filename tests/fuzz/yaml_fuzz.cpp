// libFuzzer: any bytes as a cluster's YAML are a cluster or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "expedite/base/error.h"
#include "expedite/cost/cluster.h"
#include "expedite/plan/machine.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    (void)expedite::plan::make_machine(expedite::cost::parse_cluster(text, "fuzz"), 8);
  } catch (const expedite::Error&) {
  }
  return 0;
}
