// libFuzzer: any bytes as a model's config.json are a model or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "expedite/base/error.h"
#include "expedite/base/strict_json.h"
#include "expedite/plan/transformer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr int kDepth = 32;
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    (void)expedite::plan::parse_transformer(expedite::parse_strict_json(text, "fuzz", kDepth), "fuzz");
  } catch (const expedite::Error&) {
  }
  return 0;
}
