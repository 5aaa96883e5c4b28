// StepRunner's tasks of an MoE layer on the token's side: router, permute and unpermute.
#include <algorithm>
#include <array>
#include <cstring>

#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/router.h"
#include "expedite/kernels/rows.h"
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

  moe::DispatchPlan& dispatch = routing(task.micro_batch, task.layer).plan;
  dispatch = moe::DispatchPlan(layout_, kept.experts, spec_->ep_plan.chunking);
  if (!expert_parallel()) {
    dispatch.complete(std::array{dispatch.choices()});
  }

  const auto experts = static_cast<std::size_t>(config_.experts);
  const auto sparse = static_cast<std::size_t>(sparse_index_[static_cast<std::size_t>(task.layer)]);
  for (std::size_t e = 0; e < experts; ++e) {
    loads_[static_cast<std::size_t>(task.micro_batch)][e] += dispatch.counts()[e];
    sums_[kSums + sparse * experts + e] += static_cast<double>(dispatch.counts()[e]);
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

void StepRunner::run_permute_forward(const schedule::Task& task, Held& held) {
  const moe::ChunkPlan& chunk = chunk_plan(task);
  Arena arena(held(Role::router));
  const RouterActivations kept(arena, config_, batch(task.micro_batch).size(), dtype_);
  const auto gather = [&](const std::vector<kernels::RowRef>& refs, TensorView rows, TensorView gates) {
    kernels::gather_rows(std::array{ConstTensorView(kept.normed)}, refs, rows);
    kernels::gather_rows(std::array{ConstTensorView(kept.weights)}, refs, gates);
  };
  if (spec_->sends_rows()) {
    Arena send_arena(held(Role::dispatch_send));
    const GatedRows send(send_arena, config_, chunk.sent_rows(), dtype_);
    gather(chunk.send, send.rows, send.gates);
  }
  if (spec_->shares_rows()) {
    Arena window_arena(held(Role::dispatch_recv));
    const GatedRows window(window_arena, config_, chunk.outward_rows(), dtype_);
    const std::int64_t arrived = chunk.arrived_rows();
    const std::int64_t own = chunk.outward_rows() - arrived;
    gather(chunk.share, window.rows.slice(arrived, own), window.gates.slice(arrived, own));
  }
}

void StepRunner::run_shared_experts(const schedule::Task& task, Held& held) {
  const std::int64_t tokens = batch(task.micro_batch).size();
  SharedExpertWeights& weights = parameters_.layer(task.layer).shared;
  Arena router_arena(held(Role::router));
  const RouterActivations router(router_arena, config_, tokens, dtype_);
  Arena arena(held(Role::shared_experts));
  SharedActivations kept(arena, config_, tokens, dtype_);
  if (task.pass == Pass::forward) {  // the first part of the tokens, the rest, or all
    const int early = spec_->ep_plan.unpacked_early();
    const std::int64_t split =
        early > 0 ? schedule::chunk_bounds(tokens, spec_->ep_plan.chunking)[static_cast<std::size_t>(early)]
                  : tokens / 2;
    const std::int64_t begin = task.chunk == 1 ? split : 0;
    const std::int64_t end = task.chunk == 0 ? split : tokens;
    const TensorView output = rows(held(Role::shared_output), tokens);
    shared_expert_forward(weights, router.normed, begin, end - begin, kept, output);
    kernels::add(rows(held(Role::mid), tokens).slice(begin, end - begin), output.slice(begin, end - begin));
    return;
  }
  const TensorView grad_hidden = rows(held(Role::grad_hidden, task.layer + 1), tokens);
  Arena gradients_arena(held(Role::grad_shared));
  const SharedGradients gradients(gradients_arena, config_, tokens, dtype_);
  if (task.pass == Pass::input_grad) {
    shared_expert_input_grad(weights, kept, grad_hidden, gradients.gate_up, gradients.gate, gradients.normed,
                             pool_);
  } else {
    shared_expert_weight_grad(weights, router.normed, kept, grad_hidden, gradients.gate_up, gradients.gate,
                              pool_);
  }
}

void StepRunner::run_unpermute_forward(const schedule::Task& task, Held& held) {
  const std::int64_t tokens = batch(task.micro_batch).size();
  const moe::ChunkPlan& chunk = chunk_plan(task);
  Buffer* shared = held.find(Role::shared_output);  // holds the residual already
  const TensorView residual = rows(shared != nullptr ? *shared : held(Role::mid), tokens);
  const TensorView hidden = rows(held(Role::hidden, task.layer + 1), tokens);
  kernels::sum_rows(returned_rows(task, held).rows, chunk.token_sums,
                    residual.slice(chunk.first_token, chunk.tokens),
                    hidden.slice(chunk.first_token, chunk.tokens));
  if (chunk.first_token + chunk.tokens == tokens &&
      std::max(task.chunk, 0) == spec_->ep_plan.chunking.chunks - 1) {
    observe(fmt::format("hidden_states.{}", task.layer), task.micro_batch, hidden);
  }
}

void StepRunner::run_unpermute_backward(const schedule::Task& task, Held& held) {
  const std::int64_t tokens = batch(task.micro_batch).size();
  const moe::ChunkPlan& chunk = chunk_plan(task);
  const std::array grad_hidden = {ConstTensorView(rows(held(Role::grad_hidden, task.layer + 1), tokens))};
  if (spec_->sends_rows()) {
    kernels::gather_rows(grad_hidden, chunk.send, rows(held(Role::grad_combine_send), chunk.sent_rows()));
  }
  if (spec_->shares_rows()) {
    const TensorView window = rows(held(Role::grad_combine_recv), chunk.outward_rows());
    const std::int64_t arrived = chunk.arrived_rows();
    kernels::gather_rows(grad_hidden, chunk.share, window.slice(arrived, chunk.outward_rows() - arrived));
  }
}

void StepRunner::run_permute_backward(const schedule::Task& task, Held& held) {
  const std::int64_t tokens = batch(task.micro_batch).size();
  const moe::ChunkPlan& chunk = chunk_plan(task);
  const ReturnedRows returned = returned_rows(task, held);
  const TensorView grad_mid = rows(held(Role::grad_mid), tokens);
  const TensorView grad_weights =
      held(Role::grad_weights).view(DType::f32, {tokens, config_.experts_per_token});
  ConstTensorView residual;
  if (Buffer* shared = held.find(Role::grad_shared)) {
    Arena arena(*shared);
    residual = SharedGradients(arena, config_, tokens, dtype_).normed.slice(chunk.first_token, chunk.tokens);
  }
  kernels::sum_rows(returned.rows, chunk.token_sums, residual,
                    grad_mid.slice(chunk.first_token, chunk.tokens));
  kernels::sum_rows(returned.gates, chunk.token_sums, {},
                    grad_weights.slice(chunk.first_token, chunk.tokens));
}

void StepRunner::run_boundary(const schedule::Task& task, Held& held) {
  const std::int64_t tokens = batch(task.micro_batch).size();
  const auto copy = [](ConstTensorView from, TensorView to) {
    require(from.shape() == to.shape() && from.dtype() == to.dtype(),
            "{} {} do not fit {} {} at the boundary of a step", name_of(from.dtype()),
            to_string(from.shape()), name_of(to.dtype()), to_string(to.shape()));
    std::memcpy(to.data(), from.data(), static_cast<std::size_t>(from.bytes()));
  };
  if (task.pass == Pass::input_grad) {
    copy(rows(held(Role::grad_mid), tokens), boundary_.grad_input);
  } else if (task.layer == 0) {
    copy(boundary_.input, rows(held(Role::mid), tokens));
  } else {
    copy(rows(held(Role::hidden), tokens), boundary_.output);
    if (Buffer* gradient = held.find(Role::grad_hidden)) {
      copy(boundary_.grad_output, rows(*gradient, tokens));
    }
  }
}

}  // namespace expedite::model
