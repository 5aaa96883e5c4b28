// Runs a test once per instruction set that this CPU has and the kernels are compiled for, so that the code
// of older CPUs is tested on newer ones.
#pragma once

#include <gtest/gtest.h>

#include "expedite/kernels/simd_targets.h"
// Highway reads the macro above.
#include <hwy/highway.h>

namespace expedite::kernels {

template <typename Body>
void for_each_target(const Body& body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace expedite::kernels
