// libFuzzer: any bytes as a table of measured runs are runs that can be predicted or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "expedite/base/error.h"
#include "expedite/plan/run_prediction.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const expedite::plan::Run& run : expedite::plan::parse_runs(text, "fuzz")) {
      expedite::plan::RunPrediction prediction(run);
      (void)prediction.predict(
          expedite::plan::builtin_calibration().of(prediction.device(), run.software->name));
    }
  } catch (const expedite::Error&) {
  }
  return 0;
}
