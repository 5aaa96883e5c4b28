#include "expedite/schedule/layer_tasks.h"

namespace expedite::schedule {

TaskId attention_forward(StepWriter& writer, int layer, AttentionKept kept) {
  Held held = {.acquires = {{Role::attention, layer}, {Role::mid, layer}}};
  (kept == AttentionKept::nothing ? held.releases : held.uses).push_back({Role::hidden, layer});
  if (kept != AttentionKept::all) {
    held.releases.push_back({Role::attention, layer});
  }
  return writer.compute({.op = Op::attention, .layer = layer}, held);
}

TaskId attention_recompute(StepWriter& writer, int layer, bool mid) {
  Held held = {.acquires = {{Role::attention, layer}}, .uses = {{Role::hidden, layer}}};
  if (mid) {
    held.acquires.push_back({Role::mid, layer});
  }
  for (const BufferKey& key : held.acquires) {
    writer.renew(key);
  }
  return writer.compute({.op = Op::attention, .pass = Pass::recompute, .layer = layer}, held);
}

TaskId attention_input_grad(StepWriter& writer, int layer) {
  return writer.compute({.op = Op::attention, .pass = Pass::input_grad, .layer = layer},
                        {.acquires = {{Role::grad_hidden, layer}, {Role::grad_attention, layer}},
                         .uses = {{Role::attention, layer}, {Role::grad_mid, layer}},
                         .releases = {{Role::hidden, layer}}});
}

TaskId attention_weight_grad(StepWriter& writer, int layer) {
  return writer.compute(
      {.op = Op::attention, .pass = Pass::weight_grad, .layer = layer},
      {.releases = {{Role::attention, layer}, {Role::grad_attention, layer}, {Role::grad_mid, layer}}});
}

TaskId dense_forward(StepWriter& writer, int layer, bool keep) {
  Held held = {.acquires = {{Role::mlp, layer}, {Role::hidden, layer + 1}}};
  if (keep) {
    held.uses = {{Role::mid, layer}};
  } else {
    held.releases = {{Role::mid, layer}, {Role::mlp, layer}};
  }
  return writer.compute({.op = Op::dense_mlp, .layer = layer}, held);
}

TaskId dense_recompute(StepWriter& writer, int layer) {
  writer.renew({Role::mlp, layer});
  return writer.compute({.op = Op::dense_mlp, .pass = Pass::recompute, .layer = layer},
                        {.acquires = {{Role::mlp, layer}}, .uses = {{Role::mid, layer}}});
}

TaskId dense_input_grad(StepWriter& writer, int layer) {
  return writer.compute({.op = Op::dense_mlp, .pass = Pass::input_grad, .layer = layer},
                        {.acquires = {{Role::grad_mid, layer}, {Role::grad_mlp, layer}},
                         .uses = {{Role::mlp, layer}, {Role::grad_hidden, layer + 1}},
                         .releases = {{Role::mid, layer}}});
}

TaskId dense_weight_grad(StepWriter& writer, int layer) {
  return writer.compute(
      {.op = Op::dense_mlp, .pass = Pass::weight_grad, .layer = layer},
      {.releases = {{Role::mlp, layer}, {Role::grad_mlp, layer}, {Role::grad_hidden, layer + 1}}});
}

}  // namespace expedite::schedule
