// StepRunner's communication tasks.
#include <algorithm>
#include <bit>
#include <optional>
#include <span>

#include "expedite/comm/block_gather.h"
#include "expedite/comm/metadata_gather.h"
#include "expedite/comm/reduce.h"
#include "expedite/comm/row_exchange.h"
#include "expedite/model/step_internal.h"

namespace expedite::model {
namespace {

using schedule::Op;
using schedule::Pass;
using schedule::Role;

constexpr int kRowChannel = 0;
constexpr int kGateChannel = 1;

/// Gathers the routing of all ranks, then completes the plan.
class PlanGather final : public runtime::PendingCommunication {
 public:
  PlanGather(const comm::Communicator& communicator, moe::DispatchPlan& plan)
      : plan_(plan), gather_(communicator, std::as_bytes(std::span(plan.choices()))) {}

  [[nodiscard]] bool test() override {
    if (!gather_.test()) {
      return false;
    }
    std::vector<moe::Choices> routing;
    for (const std::vector<std::byte>& block : gather_.blocks()) {
      moe::Choices choices(block.size() / sizeof(moe::Choice));
      std::ranges::copy(block, std::as_writable_bytes(std::span(choices)).begin());
      routing.push_back(std::move(choices));
    }
    plan_.complete(routing);
    return true;
  }
  [[nodiscard]] std::int64_t bytes() const override { return gather_.bytes(); }

 private:
  moe::DispatchPlan& plan_;
  comm::BlockGather gather_;
};

/// Rows, and what goes beside them if anything does.
class GatedExchange final : public runtime::PendingCommunication {
 public:
  GatedExchange(comm::RowExchange rows, std::optional<comm::RowExchange> gates)
      : rows_(std::move(rows)), gates_(std::move(gates)) {}

  [[nodiscard]] bool test() override {
    const bool rows_done = rows_.test();
    return (!gates_ || gates_->test()) && rows_done;
  }
  [[nodiscard]] std::int64_t bytes() const override { return rows_.bytes() + (gates_ ? gates_->bytes() : 0); }
  [[nodiscard]] RowTraffic rows() const override { return rows_.rows(); }

 private:
  comm::RowExchange rows_;
  std::optional<comm::RowExchange> gates_;
};

/// Tells the node where this rank's rows lie, and learns where the others' do: also that they are there.
class Announcement final : public runtime::PendingCommunication {
 public:
  Announcement(const comm::Communicator& node, std::int64_t offset, std::vector<std::int64_t>& offsets,
               std::int64_t bytes_to_read)
      : bytes_to_read_(bytes_to_read), gather_(node, std::span(&offset, 1), offsets) {}

  [[nodiscard]] bool test() override { return gather_.test(); }
  [[nodiscard]] std::int64_t bytes() const override { return gather_.bytes() + bytes_to_read_; }
  [[nodiscard]] RowTraffic rows() const override { return {.intra_node = bytes_to_read_}; }

 private:
  std::int64_t bytes_to_read_;
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
      return task.communication->collective == schedule::Collective::all_to_all
                 ? start_exchange(task, held)
                 : start_announcement(task, held);
    case Op::retire:
      return start_retirement();
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
  return std::make_unique<PlanGather>(expert_parallel_, routing(task.micro_batch, task.layer).plan);
}

StepRunner::Pending StepRunner::start_exchange(const schedule::Task& task, Held& held) {
  const moe::ChunkPlan& chunk = chunk_plan(task);
  // Rows go out to the experts in dispatch's forward and, as gradients, in combine's backward; else they come
  // back. Gate weights go with dispatch.
  const bool forward = task.pass == Pass::forward;
  const bool is_dispatch = task.op == Op::dispatch;
  const bool outward = is_dispatch == forward;
  Arena src_arena(held(is_dispatch ? (forward ? Role::dispatch_send : Role::grad_dispatch_send)
                                   : (forward ? Role::combine_send : Role::grad_combine_send)));
  Arena dst_arena(held(is_dispatch ? (forward ? Role::dispatch_recv : Role::grad_dispatch_recv)
                                   : (forward ? Role::combine_recv : Role::grad_combine_recv)));
  const auto start = [&](const void* src, void* dst, std::int64_t row_bytes, int channel) {
    return comm::RowExchange(expert_parallel_, {.src = src,
                                                .src_rows = outward ? chunk.send_rows : chunk.recv_rows,
                                                .dst = dst,
                                                .dst_rows = outward ? chunk.recv_rows : chunk.send_rows,
                                                .row_bytes = row_bytes,
                                                .node = node_of_,
                                                .channel = channel});
  };
  const std::int64_t row_bytes = config_.hidden_size * size_of(dtype_);
  const std::int64_t src_rows = outward ? chunk.sent_rows() : chunk.arrived_rows();
  const std::int64_t dst_rows = outward ? chunk.outward_rows() : chunk.sent_rows();
  if (!is_dispatch) {
    return std::make_unique<GatedExchange>(
        start(src_arena.take(dtype_, {src_rows, config_.hidden_size}).data(),
              dst_arena.take(dtype_, {dst_rows, config_.hidden_size}).data(), row_bytes, kRowChannel),
        std::nullopt);
  }
  const GatedRows src(src_arena, config_, src_rows, dtype_);
  const GatedRows dst(dst_arena, config_, dst_rows, dtype_);
  comm::RowExchange rows = start(src.rows.data(), dst.rows.data(), row_bytes, kRowChannel);
  return std::make_unique<GatedExchange>(
      std::move(rows), start(src.gates.data(), dst.gates.data(),
                             config_.experts_per_token * size_of(DType::f32), kGateChannel));
}

StepRunner::Pending StepRunner::start_announcement(const schedule::Task& task, Held& held) {
  const moe::ChunkPlan& chunk = chunk_plan(task);
  const bool forward = task.pass == Pass::forward;
  const bool is_dispatch = task.op == Op::dispatch;
  const bool outward = is_dispatch == forward;
  const Buffer& rows = held(outward ? (forward ? Role::dispatch_recv : Role::grad_combine_recv)
                                    : (forward ? Role::combine_share : Role::grad_dispatch_share));
  const Window window =
      outward ? (forward ? kDispatched : kGradCombined) : (forward ? kCombined : kGradDispatched);
  LayerRouting& layer = routing(task.micro_batch, task.layer);
  layer.offsets.resize(static_cast<std::size_t>(layer.plan.chunks()));
  std::vector<std::int64_t>& offsets =
      layer.offsets[static_cast<std::size_t>(std::max(task.chunk, 0))][window];
  offsets.resize(layout_.neighbours().size());
  const std::int64_t rows_to_read = outward ? chunk.rows_from_neighbours : chunk.sums_from_neighbours;
  return std::make_unique<Announcement>(node_, node_memory_->offset_of(rows.data()), offsets,
                                        rows_to_read * config_.hidden_size * size_of(dtype_));
}

StepRunner::Pending StepRunner::start_retirement() {
  const std::int64_t nothing = 0;
  retired_.resize(layout_.neighbours().size());
  return runtime::make_pending(comm::MetadataGather(node_, std::span(&nothing, 1), retired_));
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
