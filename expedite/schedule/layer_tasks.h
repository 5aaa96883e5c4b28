// The compute tasks of attention and of dense MLPs, with what they hold; MoE layers have moe_layer.h.
#pragma once

#include "expedite/schedule/step_writer.h"

namespace expedite::schedule {

/// What forward keeps of attention for backward.
enum class AttentionKept : std::uint8_t {
  all,
  input,    // the rest is computed again
  nothing,  // nor is it needed again: there is no backward
};

/// From the layer's `hidden` to `mid`.
TaskId attention_forward(StepWriter& writer, int layer, AttentionKept kept);
/// Attention alone; with `mid`, that too.
TaskId attention_recompute(StepWriter& writer, int layer, bool mid);
/// From the gradient of `mid` to that of `hidden`.
TaskId attention_input_grad(StepWriter& writer, int layer);
TaskId attention_weight_grad(StepWriter& writer, int layer);

/// From `mid` to the next layer's `hidden`; `keep`: what backward will need.
TaskId dense_forward(StepWriter& writer, int layer, bool keep);
/// The same again, without the next layer's `hidden`.
TaskId dense_recompute(StepWriter& writer, int layer);
/// From the gradient of the next layer's `hidden` to that of `mid`.
TaskId dense_input_grad(StepWriter& writer, int layer);
TaskId dense_weight_grad(StepWriter& writer, int layer);

}  // namespace expedite::schedule
