#include "expedite/train/memory_need.h"

#include <map>

#include "expedite/base/error.h"
#include "expedite/model/engine.h"
#include "expedite/model/step_spec.h"
#include "expedite/schedule/verify.h"
#include "expedite/text/tokenizer_files.h"
#include "expedite/train/batches.h"
#include "expedite/train/ep_plan.h"
#include "expedite/train/tokenizer_choice.h"

namespace expedite::train {
namespace {

/// What a rank's tensors take in a state; none of them has memory yet.
std::int64_t bytes_of(model::Parameters& shapes, model::State state) {
  std::int64_t total = 0;
  for (const model::Bucket& bucket : shapes.buckets()) {
    for (const model::Parameter* parameter : bucket.parameters) {
      const DType dtype = parameter->weight.dtype();
      std::int64_t each = size_of(dtype);
      each += state >= model::State::gradients ? size_of(DType::f32) : 0;
      if (state == model::State::training) {
        each += (dtype == DType::f32 ? 2 : 3) * size_of(DType::f32);  // moments, and a master
      }
      total += each * parameter->shape.elements();
    }
  }
  return total;
}

std::int64_t step_bytes(const TrainConfig& config, const ModelConfig& model,
                        const comm::Placement& placement, int rank, bool training) {
  // The second micro-batch finds what the first has left, or is under way beside it; further ones find the
  // same.
  constexpr std::int64_t kTelling = 4;
  const std::int64_t micro_batches = micro_batch_count(
      config.train.global_batch_size, config.train.micro_batch_size, placement.layout.world_size());
  const model::StepShape shape = {
      .micro_batches = training ? static_cast<int>(std::min(kTelling, micro_batches)) : 1,
      .training = training,
      .batch_aux_loss = config.moe.router_load_balancing_type == LoadBalancing::aux_loss,
      .tokens = config.train.micro_batch_size * config.data.seq_length};
  schedule::EpPlan plan = plan_as_asked(config);
  plan.taper();
  const schedule::Builder& builder = training ? *config.parallel.schedule : schedule::step_builders().front();
  return schedule::forecast_memory(
             schedule::build(builder, model::step_spec(model, config.dtype, plan, placement, rank, shape)))
      .total_peak;
}

}  // namespace

MemoryNeed memory_need(const TrainConfig& config, const ModelConfig& model, const comm::Placement& placement,
                       std::span<const int> ranks, model::State state, std::int64_t text_bytes) {
  std::map<int, std::int64_t> parameters;  // by place in the expert-parallel group
  MemoryNeed need;
  MemoryPool none;
  for (const int rank : ranks) {
    const int place = placement.layout.expert_parallel_rank(rank);
    if (!parameters.contains(place)) {
      model::Parameters shapes(model, config.dtype, model::expert_shard(model, placement.layout, rank),
                               model::State::shapes, none);
      parameters[place] = bytes_of(shapes, state);
    }
    need.parameters += parameters[place];
  }
  const auto count = static_cast<std::int64_t>(ranks.size());
  if (count > 0) {
    need.step = count * step_bytes(config, model, placement, ranks.front(), state == model::State::training);
  }
  // The text beside ids of four bytes: one for each byte, or for about three of a larger vocabulary.
  const bool bytes = tokenizer_choice(config) == text::kByteTokenizer;
  need.text = count * (text_bytes + (bytes ? 4 * text_bytes : 4 * text_bytes / 3));
  return need;
}

void require_memory(const MemoryNeed& need, std::int64_t ranks, std::int64_t available) {
  const auto gigabytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  require(need.total() <= available,
          "not enough memory: {} rank{} on this machine would take about {:.1f} GB (weights, gradients and "
          "optimizer {:.1f}, activations and buffers of a step {:.1f}, text {:.1f}), and {:.1f} GB are "
          "available. Less is taken by a smaller model, train.micro_batch_size, data.seq_length or text, and "
          "by more machines to share the experts",
          ranks, ranks == 1 ? "" : "s", gigabytes(need.total()), gigabytes(need.parameters),
          gigabytes(need.step), gigabytes(need.text), gigabytes(available));
}

}  // namespace expedite::train
