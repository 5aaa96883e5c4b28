#include <string_view>

#include "expedite/base/error.h"
#include "expedite/plan/calibration.h"

namespace expedite::plan {
namespace {

struct Offset {
  std::string_view name;  // as Calibration::describe has it
  double value;
};

// Written by `expedite validate data/measured_runs.csv --constants expedite/plan/fitted_constants.inc`.
constexpr Offset kOffsets[] = {
#include "expedite/plan/fitted_constants.inc"
};

Calibration load() {
  Calibration calibration;
  std::size_t found = 0;
  for (std::size_t i = 0; i < calibration.size(); ++i) {
    const std::string name = calibration.describe(i);
    for (const Offset& offset : kOffsets) {
      if (offset.name == name) {
        calibration.offsets()[i] = offset.value;
        ++found;
      }
    }
  }
  require(found == std::size(kOffsets),
          "fitted_constants.inc names {} constants that there are not; fit again",
          std::size(kOffsets) - found);
  return calibration;
}

}  // namespace

const Calibration& builtin_calibration() {
  static const Calibration kCalibration = load();
  return kCalibration;
}

}  // namespace expedite::plan
