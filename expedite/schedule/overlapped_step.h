// The builder of a step without pipeline stages in which each micro-batch's forward hides the exchanges of
// another's backward, and the other way round.
#pragma once

#include "expedite/schedule/step_spec.h"

namespace expedite::schedule {

/// The order of adaptive_pipe on one stage (Pangu Ultra MoE, 2025; Megatron-Core's 1F1B with overlapped
/// all-to-all is the same idea): forward of the first micro-batch, then pairs of a forward and the backward
/// of the micro-batch before, cut where they start an exchange, by turns; the last backward alone. Gradients
/// are added in the order of micro-batches, as build_train_step() adds them (to tied
/// embeddings, those of loss and of embedding in another order). Activations of two micro-batches
/// are held. One chunk, and training: pairs take layers whole.
[[nodiscard]] Schedule build_overlapped_step(const StepSpec& spec);

}  // namespace expedite::schedule
