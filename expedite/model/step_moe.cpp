// StepRunner's tasks of an MoE layer.
#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/permute.h"
#include "expedite/kernels/router.h"
#include "expedite/model/moe_layer.h"
#include "expedite/model/step_internal.h"

namespace expedite::model {

using schedule::Pass;
using schedule::Role;

void StepRunner::run_router_forward(const schedule::Task& task, Held& held) {
  const MicroBatch& input = batch(task.micro_batch);
  Arena arena(held(Role::router));
  RouterActivations kept(arena, config_, input.size(), dtype_);
  router_forward(config_, parameters_.layer(task.layer), rows(held(Role::mid), input.size()), kept, pool_);
  observe(fmt::format("router_logits.{}", task.layer), task.micro_batch, kept.logits);

  const bool local = grid_.layout().expert_parallel_size() == 1;
  moe::DispatchPlan& dispatch = plan(task.micro_batch, task.layer);
  dispatch = moe::plan_dispatch(kept.experts, config_.experts, local, kept.position);

  const auto experts = static_cast<std::size_t>(config_.experts);
  const auto sparse = static_cast<std::size_t>(sparse_index_[static_cast<std::size_t>(task.layer)]);
  for (std::size_t e = 0; e < experts; ++e) {
    loads_[static_cast<std::size_t>(task.micro_batch)][e] += dispatch.counts[e];
    sums_[kSums + sparse * experts + e] += static_cast<double>(dispatch.counts[e]);
  }
  if (options_.balance.aux_loss == AuxLoss::sequence) {
    sums_[kAuxSum] += sequence_aux_loss(kept, input.bounds);
  }
  if (options_.balance.z_coefficient > 0.0) {
    sums_[kZSum] += kernels::z_loss(kept.logits, 0.0F, {});
  }
}

std::vector<double> StepRunner::batch_shares(int micro_batch) const {
  const auto index = static_cast<std::size_t>(micro_batch);
  const std::vector<std::int64_t>& all = grid_.size() > 1 ? all_loads_[index] : loads_[index];
  std::vector<double> shares(static_cast<std::size_t>(config_.experts), 0.0);
  const double tokens = static_cast<double>(input_.micro_batch_tokens[index]) * sparse_layers_;
  for (std::size_t i = 0; i < all.size() && tokens > 0; ++i) {
    shares[i % shares.size()] += static_cast<double>(all[i]) / tokens;
  }
  return shares;
}

void StepRunner::run_router_backward(const schedule::Task& task, Held& held) {
  const MicroBatch& input = batch(task.micro_batch);
  const std::int64_t tokens = input.size();
  Arena arena(held(Role::router));
  const RouterActivations kept(arena, config_, tokens, dtype_);
  const Buffer scratch = pool_.allocate(kept.logits.bytes(), MemoryCategory::workspace);
  const TensorView grad_logits = scratch.view(DType::f32, kept.logits.shape());
  gate_backward(config_, kept, held(Role::grad_weights).view(DType::f32, kept.weights.shape()), grad_logits);

  const BalanceOptions& balance = options_.balance;
  const double aux_scale = balance.aux_coefficient * balance_scale();
  if (balance.aux_loss == AuxLoss::sequence) {
    sequence_aux_backward(config_, kept, input.bounds, aux_scale, grad_logits);
  } else if (balance.aux_loss == AuxLoss::batch) {
    const std::vector<double> shares = batch_shares(task.micro_batch);
    sums_[kAuxSum] += batch_aux_loss(kept, shares);
    batch_aux_backward(config_, kept, shares, aux_scale, grad_logits);
  }
  if (balance.z_coefficient > 0.0) {
    static_cast<void>(kernels::z_loss(
        kept.logits, static_cast<float>(balance.z_coefficient * balance_scale()), grad_logits));
  }
  router_backward(parameters_.layer(task.layer), rows(held(Role::mid), tokens), kept, grad_logits,
                  rows(held(Role::grad_hidden, task.layer + 1), tokens), rows(held(Role::grad_mid), tokens),
                  pool_);
}

void StepRunner::run_permute(const schedule::Task& task, Held& held) {
  const std::int64_t tokens = batch(task.micro_batch).size();
  moe::DispatchPlan& dispatch = plan(task.micro_batch, task.layer);
  Arena arena(held(Role::router));
  const RouterActivations kept(arena, config_, tokens, dtype_);
  if (task.pass == Pass::forward) {
    const bool local = grid_.layout().expert_parallel_size() == 1;
    kernels::gather_rows(
        kept.normed, TensorView(std::span(dispatch.source_tokens)),
        rows(held(local ? Role::expert_input : Role::dispatch_send), dispatch.dispatched_rows()));
  } else {
    kernels::unpermute(rows(held(Role::grad_dispatch_recv), dispatch.dispatched_rows()), kept.position, {},
                       {}, rows(held(Role::grad_mid), tokens));
  }
}

void StepRunner::run_experts_forward(const schedule::Task& task, Held& held) {
  const MoeWeights& weights = parameters_.layer(task.layer).moe;
  moe::DispatchPlan& dispatch = plan(task.micro_batch, task.layer);
  const std::int64_t expert_rows = dispatch.groups.rows();
  const TensorView input = rows(held(Role::expert_input), expert_rows);
  Arena arena(held(Role::experts));
  ExpertActivations kept(arena, config_, expert_rows, dtype_);
  if (grid_.layout().expert_parallel_size() == 1) {
    experts_forward(weights, dispatch.groups, input, kept, rows(held(Role::combine_recv), expert_rows));
    return;
  }
  kernels::gather_rows(rows(held(Role::dispatch_recv), dispatch.arrived_rows()),
                       TensorView(std::span(dispatch.arrival_of_row)), input);
  Buffer scratch = pool_.allocate(input.bytes(), MemoryCategory::workspace);
  const TensorView output = rows(scratch, expert_rows);
  experts_forward(weights, dispatch.groups, input, kept, output);
  kernels::gather_rows(output, TensorView(std::span(dispatch.row_of_arrival)),
                       rows(held(Role::combine_send), dispatch.arrived_rows()));
}

void StepRunner::run_experts_input_grad(const schedule::Task& task, Held& held) {
  const MoeWeights& weights = parameters_.layer(task.layer).moe;
  moe::DispatchPlan& dispatch = plan(task.micro_batch, task.layer);
  const std::int64_t expert_rows = dispatch.groups.rows();
  const TensorView grad_output = rows(held(Role::grad_expert_output), expert_rows);
  const TensorView grad_gate_up =
      held(Role::grad_experts).view(dtype_, {expert_rows, 2 * config_.moe_intermediate_size});
  Arena arena(held(Role::experts));
  const ExpertActivations kept(arena, config_, expert_rows, dtype_);
  if (grid_.layout().expert_parallel_size() == 1) {
    experts_input_grad(weights, dispatch.groups, kept, grad_output, grad_gate_up,
                       rows(held(Role::grad_dispatch_recv), expert_rows), pool_);
    return;
  }
  kernels::gather_rows(rows(held(Role::grad_combine_recv), dispatch.arrived_rows()),
                       TensorView(std::span(dispatch.arrival_of_row)), grad_output);
  Buffer scratch = pool_.allocate(grad_output.bytes(), MemoryCategory::workspace);
  const TensorView grad_input = rows(scratch, expert_rows);
  experts_input_grad(weights, dispatch.groups, kept, grad_output, grad_gate_up, grad_input, pool_);
  kernels::gather_rows(grad_input, TensorView(std::span(dispatch.row_of_arrival)),
                       rows(held(Role::grad_dispatch_send), dispatch.arrived_rows()));
}

void StepRunner::run_experts_weight_grad(const schedule::Task& task, Held& held) {
  const moe::DispatchPlan& dispatch = plan(task.micro_batch, task.layer);
  const std::int64_t expert_rows = dispatch.groups.rows();
  Arena arena(held(Role::experts));
  const ExpertActivations kept(arena, config_, expert_rows, dtype_);
  experts_weight_grad(
      parameters_.layer(task.layer).moe, dispatch.groups, rows(held(Role::expert_input), expert_rows), kept,
      rows(held(Role::grad_expert_output), expert_rows),
      held(Role::grad_experts).view(dtype_, {expert_rows, 2 * config_.moe_intermediate_size}));
}

void StepRunner::run_unpermute(const schedule::Task& task, Held& held) {
  const std::int64_t tokens = batch(task.micro_batch).size();
  const moe::DispatchPlan& dispatch = plan(task.micro_batch, task.layer);
  Arena arena(held(Role::router));
  const RouterActivations kept(arena, config_, tokens, dtype_);
  const TensorView outputs = rows(held(Role::combine_recv), dispatch.dispatched_rows());
  if (task.pass == Pass::forward) {
    const TensorView hidden = rows(held(Role::hidden, task.layer + 1), tokens);
    kernels::unpermute(outputs, kept.position, kept.weights, rows(held(Role::mid), tokens), hidden);
    observe(fmt::format("hidden_states.{}", task.layer), task.micro_batch, hidden);
    return;
  }
  const bool local = grid_.layout().expert_parallel_size() == 1;
  const TensorView grad_rows =
      rows(held(local ? Role::grad_expert_output : Role::grad_combine_send), dispatch.dispatched_rows());
  kernels::unpermute_backward(rows(held(Role::grad_hidden, task.layer + 1), tokens), outputs, kept.position,
                              kept.weights, grad_rows,
                              held(Role::grad_weights).view(DType::f32, kept.weights.shape()));
  if (local) {
    kernels::zero_padding(dispatch.groups, grad_rows);
  }
}

}  // namespace expedite::model
