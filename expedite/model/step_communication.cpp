// StepRunner's communication tasks.
#include <bit>

#include "expedite/comm/metadata_gather.h"
#include "expedite/comm/reduce.h"
#include "expedite/comm/row_exchange.h"
#include "expedite/model/step_internal.h"

namespace expedite::model {
namespace {

using schedule::Op;
using schedule::Pass;
using schedule::Role;

/// Gathers the dispatch counts, then completes the plan.
class PlanGather final : public runtime::PendingCommunication {
 public:
  PlanGather(const comm::Communicator& communicator, moe::DispatchPlan& plan, const ExpertShard& shard)
      : plan_(plan),
        shard_(shard),
        all_counts_(plan.counts.size() * static_cast<std::size_t>(communicator.size())),
        gather_(communicator, plan.counts, all_counts_) {}

  [[nodiscard]] bool test() override {
    if (!gather_.test()) {
      return false;
    }
    moe::complete_plan(plan_, all_counts_, shard_.first_expert, shard_.ep_rank);
    return true;
  }
  [[nodiscard]] std::int64_t bytes() const override { return gather_.bytes(); }

 private:
  moe::DispatchPlan& plan_;
  const ExpertShard& shard_;
  std::vector<std::int64_t> all_counts_;
  comm::MetadataGather gather_;
};

}  // namespace

StepRunner::Pending StepRunner::start(const schedule::Task& task, runtime::BufferTable& buffers) {
  Held held(*schedule_, task, buffers);
  switch (task.op) {
    case Op::metadata:
      return start_metadata(task);
    case Op::dispatch:
    case Op::combine:
      return start_exchange(task, held);
    case Op::reduce_dense:
    case Op::reduce_experts:
      return start_reduction(task);
    case Op::loads:
      return start_loads(task);
    case Op::statistics:
      return start_statistics();
    default:
      fail("{} is not a communication task of a training step", label(task));
  }
}

StepRunner::Pending StepRunner::start_metadata(const schedule::Task& task) {
  return std::make_unique<PlanGather>(expert_parallel_, plan(task.micro_batch, task.layer),
                                      parameters_.shard());
}

StepRunner::Pending StepRunner::start_exchange(const schedule::Task& task, Held& held) {
  const moe::DispatchPlan& dispatch = plan(task.micro_batch, task.layer);
  // Rows go out to the experts in dispatch's forward and, as gradients, in combine's backward; else they come
  // back.
  const bool outward = (task.op == Op::dispatch) == (task.pass == Pass::forward);
  const bool forward = task.pass == Pass::forward;
  const bool is_dispatch = task.op == Op::dispatch;
  Buffer& src = held(is_dispatch ? (forward ? Role::dispatch_send : Role::grad_dispatch_send)
                                 : (forward ? Role::combine_send : Role::grad_combine_send));
  Buffer& dst = held(is_dispatch ? (forward ? Role::dispatch_recv : Role::grad_dispatch_recv)
                                 : (forward ? Role::combine_recv : Role::grad_combine_recv));
  return runtime::make_pending(
      comm::RowExchange(expert_parallel_, {.src = src.data(),
                                           .src_rows = outward ? dispatch.send_rows : dispatch.recv_rows,
                                           .dst = dst.data(),
                                           .dst_rows = outward ? dispatch.recv_rows : dispatch.send_rows,
                                           .row_bytes = config_.hidden_size * size_of(dtype_)}));
}

StepRunner::Pending StepRunner::start_reduction(const schedule::Task& task) {
  const bool expert = task.op == Op::reduce_experts;
  const Bucket* bucket = parameters_.bucket(task.layer, expert);
  if (bucket == nullptr || bucket->gradients.empty()) {
    return nullptr;
  }
  return runtime::make_pending(
      comm::SumReduction(expert ? reduce_experts_ : reduce_world_, bucket->gradients.span<float>()));
}

StepRunner::Pending StepRunner::start_loads(const schedule::Task& task) {
  const auto index = static_cast<std::size_t>(task.micro_batch);
  all_loads_[index].resize(loads_[index].size() * static_cast<std::size_t>(grid_.size()));
  return runtime::make_pending(comm::MetadataGather(world_, loads_[index], all_loads_[index]));
}

StepRunner::Pending StepRunner::start_statistics() {
  std::vector<std::int64_t> bits(sums_.size());
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] = std::bit_cast<std::int64_t>(sums_[i]);
  }
  all_sums_.resize(bits.size() * static_cast<std::size_t>(grid_.size()));
  return runtime::make_pending(comm::MetadataGather(world_, bits, all_sums_));
}

}  // namespace expedite::model
