// From a model, a plan and the ranks' places to what the builder of a step needs to know: without MPI, so
// that a step can be built that no rank of this process runs.
#pragma once

#include <cstdint>

#include "expedite/architecture/model_config.h"
#include "expedite/comm/grid_layout.h"
#include "expedite/schedule/step_spec.h"
#include "expedite/tensor/dtype.h"

namespace expedite::model {

/// What the schedule of a step depends on.
struct StepShape {
  int micro_batches = 1;
  bool training = true;  // false: forward and loss only
  bool update = true;    // false: stop at the reduced gradients
  bool batch_aux_loss = false;
  std::int64_t tokens = 0;  // the most that a micro-batch of a rank has; the same on all ranks
  bool operator==(const StepShape&) const = default;
};

/// Rank `rank`'s, for schedule::build_train_step.
[[nodiscard]] schedule::StepSpec step_spec(const ModelConfig& config, DType dtype,
                                           const schedule::EpPlan& plan, const comm::Placement& placement,
                                           int rank, const StepShape& shape);

}  // namespace expedite::model
