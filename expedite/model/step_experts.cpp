// StepRunner's tasks of an MoE layer on the experts' side, and where their rows lie.
#include <algorithm>
#include <array>
#include <limits>

#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/rows.h"
#include "expedite/model/step_internal.h"

namespace expedite::model {

using schedule::Pass;
using schedule::Role;

kernels::RowBlocks StepRunner::expert_blocks(const schedule::Task& task) {
  return spec_->whole_layer_buffers()
             ? routing(task.micro_batch, task.layer).plan.layer_blocks(std::max(task.chunk, 0), task.chunks)
             : chunk_plan(task).blocks;
}

std::int64_t StepRunner::rows_of(const schedule::LogicalBuffer& buffer) {
  const moe::ChunkPlan& chunk = chunk_plan(buffer);
  switch (static_cast<Role>(buffer.role)) {
    case Role::dispatch_send:
    case Role::combine_recv:
    case Role::grad_combine_send:
    case Role::grad_dispatch_recv:
      return chunk.sent_rows();
    case Role::dispatch_recv:
    case Role::grad_combine_recv:
      return chunk.outward_rows();
    case Role::combine_send:
    case Role::grad_dispatch_send:
      return chunk.arrived_rows();
    case Role::combine_share:
    case Role::grad_dispatch_share:
      return chunk.neighbour_shares[static_cast<std::size_t>(layout_.local_index(layout_.rank()))];
    case Role::expert_output:
    case Role::grad_expert_input:
      return chunk.blocks.total;
    case Role::expert_input:
    case Role::grad_output:
    case Role::activated:
    case Role::gate_up:
    case Role::grad_gate_up:
      return spec_->whole_layer_buffers()
                 ? routing(buffer.micro_batch, buffer.layer).plan.layer_blocks(0, 1).total
                 : chunk.blocks.total;
    default:
      fail("a step has no buffer of role {}", buffer.role);
  }
}

// ---- Rows of several ranks

StepRunner::NeighbourRows StepRunner::neighbour_rows(const schedule::Task& task, Window window,
                                                     const std::vector<std::int64_t>& counts, bool gated,
                                                     Buffer* own) {
  constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();
  const int self = layout_.local_index(layout_.rank());
  NeighbourRows result;
  for (int n = 0; n < static_cast<int>(counts.size()); ++n) {
    void* base = own != nullptr ? own->data() : nullptr;
    if (n != self) {
      const auto& offsets = routing(task.micro_batch, task.layer)
                                .offsets[static_cast<std::size_t>(std::max(task.chunk, 0))][window];
      // Arenas write as well as read; these views leave as constant ones.
      base = const_cast<std::byte*>(node_memory_->at(n, offsets[static_cast<std::size_t>(n)]));
    }
    const bool wanted = n != self || own != nullptr;
    const std::int64_t count = wanted ? counts[static_cast<std::size_t>(n)] : 0;
    Arena arena(base, kUnbounded);
    if (gated) {
      const GatedRows there(arena, config_, count, dtype_);
      result.rows.emplace_back(there.rows);
      result.gates.emplace_back(there.gates);
    } else {
      result.rows.emplace_back(arena.take(dtype_, {count, config_.hidden_size}));
    }
  }
  return result;
}

StepRunner::ReturnedRows StepRunner::returned_rows(const schedule::Task& task, Held& held) {
  const moe::ChunkPlan& chunk = chunk_plan(task);
  const bool forward = task.pass == Pass::forward;
  const bool at_relay = task.op == schedule::Op::node_sum;
  ReturnedRows sources;
  const auto add = [&](Buffer* buffer, std::int64_t count) {
    Arena arena;
    if (buffer != nullptr) {
      arena = Arena(*buffer);
    }
    const std::int64_t held_rows = buffer != nullptr ? count : 0;
    if (forward) {
      sources.rows.emplace_back(arena.take(dtype_, {held_rows, config_.hidden_size}));
    } else {
      const GatedRows gradients(arena, config_, held_rows, dtype_);
      sources.rows.emplace_back(gradients.rows);
      sources.gates.emplace_back(gradients.gates);
    }
  };
  add(held.find(forward ? Role::expert_output : Role::grad_expert_input), chunk.blocks.total);
  add(at_relay ? nullptr : held.find(forward ? Role::combine_recv : Role::grad_dispatch_recv),
      chunk.sent_rows());
  if (spec_->shares_rows()) {
    const NeighbourRows neighbours = neighbour_rows(task, forward ? kCombined : kGradDispatched,
                                                    chunk.neighbour_shares, !forward, nullptr);
    sources.rows.insert(sources.rows.end(), neighbours.rows.begin(), neighbours.rows.end());
    sources.gates.insert(sources.gates.end(), neighbours.gates.begin(), neighbours.gates.end());
  }
  return sources;
}

void StepRunner::run_node_sum(const schedule::Task& task, Held& held) {
  const moe::ChunkPlan& chunk = chunk_plan(task);
  const ReturnedRows sources = returned_rows(task, held);
  if (task.pass == Pass::forward) {
    kernels::sum_rows(sources.rows, chunk.return_sums, {},
                      rows(held(Role::combine_send), chunk.arrived_rows()));
    return;
  }
  Arena arena(held(Role::grad_dispatch_send));
  const GatedRows send(arena, config_, chunk.arrived_rows(), dtype_);
  kernels::sum_rows(sources.rows, chunk.return_sums, {}, send.rows);
  kernels::sum_rows(sources.gates, chunk.return_sums, {}, send.gates);
}

/// Where ranks share rows, for this node's others; else for the ranks that rows came from.
void StepRunner::sum_for_others(const schedule::Task& task, Held& held) {
  if (!expert_parallel()) {
    return;
  }
  const moe::ChunkPlan& chunk = chunk_plan(task);
  const bool shares = spec_->shares_rows();
  const std::vector<kernels::RowRef>& sums = shares ? chunk.shared_sums : chunk.return_sums;
  const auto count = static_cast<std::int64_t>(sums.size()) / config_.experts_per_token;
  if (task.pass == Pass::forward) {
    const TensorView output = rows(held(Role::expert_output), chunk.blocks.total);
    kernels::sum_rows(std::array{ConstTensorView(output)}, sums, {},
                      rows(held(shares ? Role::combine_share : Role::combine_send), count));
    return;
  }
  Arena arena(held(Role::grad_expert_input));
  const GatedRows gradients(arena, config_, chunk.blocks.total, dtype_);
  Arena sums_arena(held(shares ? Role::grad_dispatch_share : Role::grad_dispatch_send));
  const GatedRows summed(sums_arena, config_, count, dtype_);
  kernels::sum_rows(std::array{ConstTensorView(gradients.rows)}, sums, {}, summed.rows);
  kernels::sum_rows(std::array{ConstTensorView(gradients.gates)}, sums, {}, summed.gates);
}

// ---- Experts

namespace {

/// Rows of a chunk in its own expert order to where its blocks lie in `dst`.
void expand_rows(std::span<const ConstTensorView> sources, const moe::ChunkPlan& chunk,
                 const kernels::RowBlocks& blocks, TensorView dst) {
  for (std::size_t e = 0; e < blocks.begin.size(); ++e) {
    const auto refs = std::span(chunk.expand)
                          .subspan(static_cast<std::size_t>(chunk.blocks.begin[e]),
                                   static_cast<std::size_t>(chunk.blocks.rows[e]));
    kernels::gather_rows(sources, refs, dst.slice(blocks.begin[e], blocks.rows[e]));
  }
}

/// visit(row in the chunk's expert order, row where its block lies, slot, reference) for every token's row.
template <typename Visit>
void for_each_token_row(const moe::ChunkPlan& chunk, const kernels::RowBlocks& blocks, const Visit& visit) {
  for (std::size_t e = 0; e < blocks.begin.size(); ++e) {
    for (std::int64_t i = 0; i < blocks.rows[e]; ++i) {
      const std::int64_t row = chunk.blocks.begin[e] + i;
      visit(row, blocks.begin[e] + i, chunk.slot[static_cast<std::size_t>(row)],
            chunk.expand[static_cast<std::size_t>(row)]);
    }
  }
}

}  // namespace

TensorView StepRunner::gate_up_rows(Buffer& buffer, std::int64_t count) const {
  return buffer.view(dtype_, {count, 2 * config_.moe_intermediate_size});
}

TensorView StepRunner::activated_rows(Buffer& buffer, std::int64_t count) const {
  return buffer.view(dtype_, {count, config_.moe_intermediate_size});
}

/// In gate/up's place, where the schedule has no buffer for it.
TensorView StepRunner::grad_gate_up_rows(Held& held, std::int64_t count) const {
  Buffer* const own = held.find(Role::grad_gate_up);
  return gate_up_rows(own != nullptr ? *own : held(Role::gate_up), count);
}

void StepRunner::run_experts(const schedule::Task& task, Held& held) {
  switch (task.pass) {
    case Pass::forward:
      return run_experts_forward(task, held);
    case Pass::recompute:
      return run_experts_recompute(task, held);
    case Pass::input_grad:
      return run_experts_input_grad(task, held);
    default:
      return run_experts_weight_grad(task, held);
  }
}

void StepRunner::run_experts_forward(const schedule::Task& task, Held& held) {
  const MoeWeights& weights = parameters_.layer(task.layer).moe;
  const moe::ChunkPlan& chunk = chunk_plan(task);
  const kernels::RowBlocks blocks = expert_blocks(task);
  Arena router_arena(held(Role::router));
  const RouterActivations router(router_arena, config_, batch(task.micro_batch).size(), dtype_);
  Sources row_sources = {router.normed};
  Sources gate_sources = {router.weights};
  if (expert_parallel()) {
    const NeighbourRows arrived =
        neighbour_rows(task, kDispatched, chunk.neighbour_rows, true, &held(Role::dispatch_recv));
    row_sources.insert(row_sources.end(), arrived.rows.begin(), arrived.rows.end());
    gate_sources.insert(gate_sources.end(), arrived.gates.begin(), arrived.gates.end());
  }
  Arena input_arena(held(Role::expert_input));
  ExpertInput input(input_arena, config_, blocks.total, dtype_);
  expand_rows(row_sources, chunk, blocks, input.rows);
  auto* gate = input.weights.as<float>();
  for_each_token_row(
      chunk, blocks, [&](std::int64_t, std::int64_t row, std::int32_t slot, kernels::RowRef from) {
        gate[row] = from.source < 0 ? 0.0F
                                    : gate_sources[static_cast<std::size_t>(from.source)]
                                          .as<float>()[from.row * config_.experts_per_token + slot];
      });

  const TensorView gate_up = gate_up_rows(held(Role::gate_up), blocks.total);
  const TensorView activated = activated_rows(held(Role::activated), blocks.total);
  experts_gate_up(weights, blocks, input, gate_up);
  experts_activate(glu_options(config_), blocks, input, gate_up, activated);
  experts_forward(weights, blocks, input, activated, chunk.blocks,
                  rows(held(Role::expert_output), chunk.blocks.total));
  sum_for_others(task, held);
}

void StepRunner::run_experts_recompute(const schedule::Task& task, Held& held) {
  const kernels::RowBlocks& blocks = chunk_plan(task).blocks;
  Arena input_arena(held(Role::expert_input));
  const ExpertInput input(input_arena, config_, blocks.total, dtype_);
  const TensorView gate_up = gate_up_rows(held(Role::gate_up), blocks.total);
  if (spec_->ep_plan.recompute == schedule::MoeRecompute::full) {
    experts_gate_up(parameters_.layer(task.layer).moe, blocks, input, gate_up);
  }
  experts_activate(glu_options(config_), blocks, input, gate_up,
                   activated_rows(held(Role::activated), blocks.total));
}

void StepRunner::run_experts_input_grad(const schedule::Task& task, Held& held) {
  const moe::ChunkPlan& chunk = chunk_plan(task);
  const kernels::RowBlocks blocks = expert_blocks(task);
  Sources sources = {rows(held(Role::grad_hidden, task.layer + 1), batch(task.micro_batch).size())};
  if (expert_parallel()) {
    const NeighbourRows arrived =
        neighbour_rows(task, kGradCombined, chunk.neighbour_rows, false, &held(Role::grad_combine_recv));
    sources.insert(sources.end(), arrived.rows.begin(), arrived.rows.end());
  }
  const TensorView grad_output = rows(held(Role::grad_output), blocks.total);
  expand_rows(sources, chunk, blocks, grad_output);

  Arena input_arena(held(Role::expert_input));
  const ExpertInput input(input_arena, config_, blocks.total, dtype_);
  Arena gradients_arena(held(Role::grad_expert_input));
  const GatedRows gradients(gradients_arena, config_, chunk.blocks.total, dtype_);
  const Buffer scratch =
      pool_.allocate(chunk.blocks.total * size_of(DType::f32), MemoryCategory::expert_activations);
  const TensorView grad_weights = scratch.view(DType::f32, {chunk.blocks.total});
  experts_input_grad(glu_options(config_), parameters_.layer(task.layer).moe, blocks, input,
                     gate_up_rows(held(Role::gate_up), blocks.total), grad_output,
                     grad_gate_up_rows(held, blocks.total), chunk.blocks, gradients.rows, grad_weights,
                     pool_);

  kernels::fill_zero(gradients.gates);
  auto* gates = gradients.gates.as<float>();
  const auto* gradient = grad_weights.as<float>();
  for_each_token_row(chunk, blocks, [&](std::int64_t row, std::int64_t, std::int32_t slot, kernels::RowRef) {
    gates[row * config_.experts_per_token + slot] = gradient[row];
  });
  sum_for_others(task, held);
}

void StepRunner::run_experts_weight_grad(const schedule::Task& task, Held& held) {
  const kernels::RowBlocks blocks = expert_blocks(task);
  Arena input_arena(held(Role::expert_input));
  const ExpertInput input(input_arena, config_, blocks.total, dtype_);
  experts_weight_grad(parameters_.layer(task.layer).moe, blocks, input,
                      activated_rows(held(Role::activated), blocks.total),
                      rows(held(Role::grad_output), blocks.total), grad_gate_up_rows(held, blocks.total));
}

}  // namespace expedite::model
