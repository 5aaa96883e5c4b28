// A builder of training steps that overlaps two micro-batches: docs/builders.md walks through it.
#pragma once

#include "expedite/schedule/builders.h"

namespace expedite::examples {

/// Micro-batches go two by two, forward beside forward and backward beside backward: what one starts to send
/// travels while the other computes. Of an odd number the last goes alone. For models whose layers all have
/// experts, in training, without the auxiliary loss over the whole batch.
[[nodiscard]] schedule::Schedule build_two_micro_batches(const schedule::StepSpec& spec);

inline constexpr schedule::Builder kTwoMicroBatches = {
    "two_micro_batches", "two micro-batches, each computing while the other's rows travel",
    build_two_micro_batches, /*chunks=*/true, /*evaluation=*/false};

}  // namespace expedite::examples
