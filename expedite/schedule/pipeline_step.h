// The fine builder of pipelines: a whole training step of one rank, layer by layer.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "expedite/schedule/pipeline_order.h"
#include "expedite/schedule/step_spec.h"

namespace expedite::schedule {

/// Groups of a rank in a pipeline, besides those of every step.
inline constexpr GroupId kDataParallelGroup = 4;  // the ranks that hold the same dense weights
inline constexpr GroupId kPipelineGroup = 5;  // one rank of each stage, the rank of a lower stage being lower

/// What a layer computes again in backward instead of keeping it; of its experts alone, EpPlan::recompute
/// says.
enum class LayerRecompute : std::uint8_t {
  none,
  attention,  // attention
  full,       // the whole layer, exchanges included, with the routing as it was
};
[[nodiscard]] std::string_view name_of(LayerRecompute recompute);

struct PipelineSpec {
  PipelineShape shape;
  int stage = 0;
  /// Of this rank, with all layers of the model in `sparse` and six groups; `micro_batches` and `training`
  /// are not read, and `batch_aux_loss` needs a model in one part.
  StepSpec step;
  int mtp_layers = 0;  // multi-token prediction: the last ones of `sparse`
  /// parts_of(shape) + 1 of them: part q holds items [bounds[q], bounds[q + 1]), at least one, where item 0
  /// is the embedding, item 1 + L is layer L, and the last is the head. Empty: items cut evenly by number.
  std::vector<int> bounds = {};
  LayerRecompute recompute = LayerRecompute::none;
  int recompute_every = 1;         // of so many layers one recomputes, beginning with the first
  bool sharded_optimizer = false;  // gradients are reduce-scattered, updated weights all-gathered
  // ZeRO 2 and 3 besides; not with dualpipe, whose copies of a part take their micro-batches in other orders.
  bool sharded_gradients = false;  // every micro-batch's are reduced
  bool sharded_weights = false;    // a layer's are gathered for forward and again for backward, one ahead

  [[nodiscard]] int items() const { return step.layers() + 2; }
  [[nodiscard]] LayerRecompute recompute_of(int layer) const {
    return layer % recompute_every == 0 ? recompute : LayerRecompute::none;
  }
};

/// Part q of `parts` begins at item floor(q * items / parts): bounds as in PipelineSpec.
[[nodiscard]] std::vector<int> even_bounds(int items, int parts);

/// In the order that stage_order() says. A layer's tasks are those of build_train_step(); the exchanges of a
/// layer run under what the layer itself has (its other chunks; shared experts; weight gradients). In a pair,
/// forward and backward are cut where they start an exchange, and take turns: each exchange of one runs under
/// compute of the other, and layers are not cut into chunks. The gradient leaves a stage before the last
/// weight gradients, which run while it is on its way. Loss and head, with their gradients, run in forward.
/// Activations that pass a layer of multi-token prediction take those of the main model along: the message is
/// as large again. Gradients of a layer are reduced when its last micro-batch's are there, or
/// every micro-batch's. Sends and receives
/// bear the part that they are for (Piece::part). Throws Error for shapes that problem_of() rejects, and for
/// a spec that does not fit together.
[[nodiscard]] Schedule build_pipeline_step(const PipelineSpec& spec);

}  // namespace expedite::schedule
