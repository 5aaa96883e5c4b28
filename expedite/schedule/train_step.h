// The builder of a training (or evaluation) step with data and expert parallelism.
#pragma once

#include "expedite/schedule/step_spec.h"

namespace expedite::schedule {

/// One rank's step. Per micro-batch: forward through all layers, then backward, where weight gradients are
/// filler under the all-to-alls: those of the experts under dispatch's, those of the attention above under
/// combine's. In the last micro-batch a layer's gradients are reduced as soon as they are complete, under the
/// backward of those below. Then the norm of all gradients, and the optimizer.
[[nodiscard]] Schedule build_train_step(const StepSpec& spec);

/// Forward and backward (without `spec.training`: forward) of one MoE layer alone, layer 0, as a measurement
/// wants it: its input and the gradient of its output come from outside.
[[nodiscard]] Schedule build_moe_layer_step(const StepSpec& spec);

}  // namespace expedite::schedule
