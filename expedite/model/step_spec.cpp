#include "expedite/model/step_spec.h"

#include <algorithm>

#include "expedite/architecture/buffer_bytes.h"

namespace expedite::model {

schedule::StepSpec step_spec(const ModelConfig& config, DType dtype, const schedule::EpPlan& plan,
                             const comm::Placement& placement, int rank, const StepShape& shape) {
  const comm::GridLayout& layout = placement.layout;
  const std::vector<int> ep_ranks = layout.expert_parallel_ranks(rank);
  schedule::StepSpec spec;
  spec.rank = rank;
  spec.groups = {{"world", layout.world_ranks()},
                 {"ep", ep_ranks},
                 {"expert_dp", layout.expert_data_parallel_ranks(rank)},
                 {"ep_node", {}}};
  for (const int other : ep_ranks) {
    if (placement.node(other) == placement.node(rank)) {
      spec.groups[schedule::kNodeGroup].ranks.push_back(other);
    }
  }
  spec.ep_plan = plan;
  schedule::Chunking& chunking = spec.ep_plan.chunking;
  if (chunking.chunk_size > 0) {
    chunking.chunks = static_cast<int>(
        std::max<std::int64_t>(1, (shape.tokens + chunking.chunk_size - 1) / chunking.chunk_size));
  }
  // Collectives over the world share this stream, so all ranks must choose the same: the widest that any
  // group needs.
  spec.expert_parallel_stream = placement.nodes() > 1 ? schedule::Stream::inter : schedule::Stream::intra;
  spec.sparse = config.sparse;
  spec.micro_batches = shape.micro_batches;
  spec.training = shape.training;
  spec.update = shape.update;
  spec.batch_aux_loss = shape.batch_aux_loss;
  spec.tokens = shape.tokens;
  spec.shared_experts = config.shared_expert_intermediate_size > 0;
  spec.experts_per_token = config.experts_per_token;
  spec.bytes = architecture::BufferBytes(config, dtype);
  return spec;
}

}  // namespace expedite::model
