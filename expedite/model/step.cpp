#include "expedite/model/step.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "expedite/kernels/cross_entropy.h"
#include "expedite/kernels/embedding.h"
#include "expedite/kernels/matmul.h"
#include "expedite/kernels/rms_norm.h"
#include "expedite/model/attention_layer.h"
#include "expedite/model/dense_mlp.h"
#include "expedite/model/step_internal.h"

namespace expedite::model {

using schedule::Op;
using schedule::Pass;
using schedule::Role;

StepRunner::StepRunner(Parameters& parameters, const comm::ProcessGrid& grid, MemoryPool& pool,
                       const schedule::EpPlan& plan)
    : parameters_(parameters),
      config_(parameters.config()),
      dtype_(parameters.dtype()),
      buffer_bytes_(config_, dtype_),
      grid_(grid),
      pool_(pool),
      expert_parallel_(grid.expert_parallel().duplicate("ep")),
      node_(grid.expert_parallel().split(grid.node(), grid.expert_parallel().rank(), "ep_node")),
      world_(grid.world().duplicate("world")),
      reduce_world_(grid.world().duplicate("world")),
      reduce_experts_(grid.expert_data_parallel().duplicate("expert_dp")),
      ep_plan_(plan) {
  for (const bool sparse : config_.sparse) {
    sparse_index_.push_back(sparse ? sparse_layers_++ : -1);
  }
  std::vector<int> numbers;  // of nodes, in the order in which the group meets them
  for (const int rank : grid.layout().expert_parallel_ranks(grid.rank())) {
    const auto number = std::find(numbers.begin(), numbers.end(), grid.node_of(rank));
    node_of_.push_back(static_cast<int>(number - numbers.begin()));
    if (number == numbers.end()) {
      numbers.push_back(grid.node_of(rank));
    }
  }
  layout_ = moe::ExpertLayout(parameters.shard().first_expert, node_of_, parameters.shard().ep_rank,
                              plan.dispatcher);
  if (layout_.neighbours().size() > 1) {
    node_memory_ = std::make_unique<comm::NodeMemory>(node_);
    shared_pool_ = std::make_unique<MemoryPool>(*node_memory_);
  }
}

schedule::StepSpec StepRunner::spec(int rank, const StepShape& shape) const {
  return step_spec(config_, dtype_, ep_plan_, grid_.placement(), rank, shape);
}

void StepRunner::begin(const schedule::StepSpec& spec, const schedule::Schedule& schedule, Input input,
                       StepOptions options) {
  spec_ = &spec;
  schedule_ = &schedule;
  input_ = std::move(input);
  options_ = options;
  const std::size_t micro_batches = input_.micro_batches.size();
  const auto experts = static_cast<std::size_t>(config_.experts);
  routing_.assign(micro_batches * config_.sparse.size(), {});
  loads_.assign(micro_batches, std::vector<std::int64_t>(experts, 0));
  all_loads_ = loads_;  // of one rank; replaced by the gathered ones on several
  sums_.assign(kSums + static_cast<std::size_t>(sparse_layers_) * experts, 0.0);
  sums_[kStop] = options_.stop ? 1.0 : 0.0;
  all_sums_.clear();
}

StepResult StepRunner::result() const {
  std::vector<double> total = sums_;
  if (!all_sums_.empty()) {  // added in rank order, so that every rank has the same bits
    total.assign(sums_.size(), 0.0);
    for (std::size_t i = 0; i < all_sums_.size(); ++i) {
      total[i % total.size()] += std::bit_cast<double>(all_sums_[i]);
    }
  }
  StepResult result;
  result.targets = input_.total_targets;
  result.loss = input_.total_targets > 0 ? total[kLossSum] / static_cast<double>(input_.total_targets) : 0.0;
  result.aux_loss = total[kAuxSum] * balance_scale();
  result.z_loss = total[kZSum] * balance_scale();
  result.gradient_norm = std::sqrt(total[kSquares]);
  result.stop = total[kStop] > 0.0;
  const auto experts = static_cast<std::size_t>(config_.experts);
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(sparse_layers_); ++layer) {
    const auto begin = total.begin() + static_cast<std::ptrdiff_t>(kSums + layer * experts);
    result.expert_loads.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(experts));
  }
  return result;
}

double StepRunner::balance_scale() const {
  const double tokens_and_layers = static_cast<double>(input_.total_tokens) * sparse_layers_;
  return tokens_and_layers > 0 ? 1.0 / tokens_and_layers : 0.0;
}

StepRunner::LayerRouting& StepRunner::routing(int micro_batch, int layer) {
  return routing_[static_cast<std::size_t>(micro_batch) * config_.sparse.size() +
                  static_cast<std::size_t>(layer)];
}

// A layer in one piece has no chunk numbers.
const moe::ChunkPlan& StepRunner::chunk_plan(const schedule::Task& task) {
  return routing(task.micro_batch, task.layer).plan.chunk(std::max(task.chunk, 0));
}

const moe::ChunkPlan& StepRunner::chunk_plan(const schedule::LogicalBuffer& buffer) {
  return routing(buffer.micro_batch, buffer.layer).plan.chunk(std::max(buffer.chunk, 0));
}

const MicroBatch& StepRunner::batch(int micro_batch) const {
  return input_.micro_batches[static_cast<std::size_t>(micro_batch)];
}

TensorView StepRunner::rows(Buffer& buffer, std::int64_t count) const {
  return buffer.view(dtype_, {count, config_.hidden_size});
}

void StepRunner::observe(const std::string& name, int micro_batch, ConstTensorView value) const {
  if (observer_) {
    observer_(name, micro_batch, value);
  }
}

std::int64_t StepRunner::bytes(const schedule::LogicalBuffer& buffer) {
  const auto role = static_cast<Role>(buffer.role);
  return buffer_bytes_(role, schedule::holds_rows(role) ? rows_of(buffer) : batch(buffer.micro_batch).size());
}

void StepRunner::run(const schedule::Task& task, runtime::BufferTable& buffers) {
  if (task.pass == Pass::recompute && task.op != Op::experts) {
    fail("{}: of a training step only experts are computed again", label(task));
  }
  Held held(*schedule_, task, buffers);
  const bool forward = task.pass == Pass::forward;
  switch (task.op) {
    case Op::embedding:
      return run_embedding(task, held);
    case Op::attention:
      return run_attention(task, held);
    case Op::dense_mlp:
      return run_dense_mlp(task, held);
    case Op::router:
      return forward ? run_router_forward(task, held) : run_router_backward(task, held);
    case Op::permute:
      return forward ? run_permute_forward(task, held) : run_permute_backward(task, held);
    case Op::experts:
      return run_experts(task, held);
    case Op::shared_experts:
      return run_shared_experts(task, held);
    case Op::node_sum:
      return run_node_sum(task, held);
    case Op::unpermute:
      return forward ? run_unpermute_forward(task, held) : run_unpermute_backward(task, held);
    case Op::boundary:
      return run_boundary(task, held);
    case Op::loss:
      return run_loss(task, held);
    case Op::gradient_norm:
      return run_gradient_norm();
    case Op::optimizer:
      return run_optimizer(task);
    default:
      fail("{} is not a compute task of a training step", label(task));
  }
}

void StepRunner::run_embedding(const schedule::Task& task, Held& held) {
  const MicroBatch& input = batch(task.micro_batch);
  Parameter& table = parameters_.embedding();
  if (task.pass == Pass::forward) {
    kernels::embedding(table.weight, input.tokens, rows(held(Role::hidden, 0), input.size()));
  } else {
    kernels::embedding_backward(rows(held(Role::grad_hidden, 0), input.size()), input.tokens, table.gradient);
  }
}

void StepRunner::run_attention(const schedule::Task& task, Held& held) {
  const MicroBatch& input = batch(task.micro_batch);
  const std::int64_t tokens = input.size();
  const AttentionLayer layer(config_, task.layer, parameters_.layer(task.layer).attention, input, dtype_,
                             pool_);
  Buffer& kept = held(Role::attention);
  if (task.pass == Pass::forward) {
    layer.forward(rows(held(Role::hidden), tokens), kept, rows(held(Role::mid), tokens));
    return;
  }
  const TensorView grad_mid = rows(held(Role::grad_mid), tokens);
  Buffer& grads = held(Role::grad_attention);
  if (task.pass == Pass::input_grad) {
    layer.input_grad(rows(held(Role::hidden), tokens), kept, grad_mid, grads,
                     rows(held(Role::grad_hidden), tokens));
  } else {
    layer.weight_grad(kept, grad_mid, grads);
  }
}

void StepRunner::run_dense_mlp(const schedule::Task& task, Held& held) {
  const std::int64_t tokens = batch(task.micro_batch).size();
  LayerWeights& weights = parameters_.layer(task.layer);
  Arena arena(held(Role::mlp));
  DenseActivations kept(arena, config_, tokens, dtype_);
  if (task.pass == Pass::forward) {
    const TensorView hidden = rows(held(Role::hidden, task.layer + 1), tokens);
    dense_mlp_forward(config_, weights, rows(held(Role::mid), tokens), kept, hidden);
    observe(fmt::format("hidden_states.{}", task.layer), task.micro_batch, hidden);
    return;
  }
  const TensorView grad_hidden = rows(held(Role::grad_hidden, task.layer + 1), tokens);
  const TensorView grad_gate_up = held(Role::grad_mlp).view(dtype_, {tokens, 2 * config_.intermediate_size});
  if (task.pass == Pass::input_grad) {
    dense_mlp_input_grad(weights, rows(held(Role::mid), tokens), kept, grad_hidden, grad_gate_up,
                         rows(held(Role::grad_mid), tokens), pool_);
  } else {
    dense_mlp_weight_grad(weights, kept, grad_hidden, grad_gate_up);
  }
}

void StepRunner::run_loss(const schedule::Task& task, Held& held) {
  const MicroBatch& input = batch(task.micro_batch);
  const std::int64_t tokens = input.size();
  const int layers = static_cast<int>(config_.layers);
  const bool training = !task.acquires.empty();  // it makes the gradient that backward starts from
  const TensorView hidden = rows(held(Role::hidden, layers), tokens);

  Buffer normed_buffer =
      pool_.allocate(tokens * config_.hidden_size * size_of(dtype_), MemoryCategory::workspace);
  const TensorView normed = rows(normed_buffer, tokens);
  const Buffer rms_buffer = pool_.allocate(tokens * size_of(DType::f32), MemoryCategory::workspace);
  const TensorView inverse_rms = rms_buffer.view(DType::f32, {tokens});
  kernels::rms_norm(hidden, parameters_.final_norm().weight, config_.rms_norm_eps, normed, inverse_rms);

  if (observer_) {
    observe("final_hidden_state", task.micro_batch, normed);
    const Buffer logits_buffer =
        pool_.allocate(tokens * config_.vocab_size * size_of(DType::f32), MemoryCategory::workspace);
    const TensorView logits = logits_buffer.view(DType::f32, {tokens, config_.vocab_size});
    kernels::matmul(normed, parameters_.head().weight, logits, {.transpose_b = true});
    observe("logits", task.micro_batch, logits);
  }

  if (!training) {
    sums_[kLossSum] +=
        kernels::linear_cross_entropy(normed, parameters_.head().weight, input.targets, nullptr, pool_);
    return;
  }
  kernels::CrossEntropyGradients gradients;
  gradients.scale = static_cast<float>(
      input_.total_targets > 0 ? options_.loss_scale / static_cast<double>(input_.total_targets) : 0.0);
  gradients.dhidden = rows(held(Role::grad_hidden, layers), tokens);
  gradients.dweight = parameters_.head().gradient;
  sums_[kLossSum] +=
      kernels::linear_cross_entropy(normed, parameters_.head().weight, input.targets, &gradients, pool_);
  kernels::rms_norm_backward(gradients.dhidden, hidden, parameters_.final_norm().weight, inverse_rms,
                             gradients.dhidden, false, parameters_.final_norm().gradient);
}

void StepRunner::run_gradient_norm() {
  // Every gradient counts once: dense ones on the first rank, an expert's on its first replica.
  for (const Bucket& bucket : parameters_.buckets()) {
    const bool counted = bucket.expert ? grid_.layout().replica(grid_.rank()) == 0 : grid_.rank() == 0;
    if (counted) {
      sums_[kSquares] += kernels::sum_of_squares(bucket.gradients);
    }
  }
}

void StepRunner::run_optimizer(const schedule::Task& task) {
  const double norm = result().gradient_norm;
  require(std::isfinite(norm),
          "the gradient norm is {}: the run has diverged; the weights are those of the step before. Lower "
          "optimizer.lr or lengthen optimizer.warmup_steps, and resume from the last checkpoint",
          norm);
  kernels::AdamwOptions adamw = options_.adamw;
  if (options_.clip_grad > 0.0 && norm > options_.clip_grad) {
    adamw.gradient_scale = static_cast<float>(options_.clip_grad / norm);
  }
  const float decay = adamw.weight_decay;
  for (const bool expert : {false, true}) {
    const Bucket* bucket = parameters_.bucket(task.layer, expert);
    if (bucket == nullptr) {
      continue;
    }
    for (Parameter* parameter : bucket->parameters) {
      adamw.weight_decay = parameter->decay ? decay : 0.0F;
      const auto flat = [](const TensorView& tensor) { return tensor.reshape({tensor.elements()}); };
      kernels::adamw(adamw, flat(parameter->master), flat(parameter->exp_avg), flat(parameter->exp_avg_sq),
                     flat(parameter->gradient), flat(parameter->weight), true);
    }
  }
  if (task.layer >= 0 && task.layer < static_cast<int>(config_.layers)) {
    update_selection_bias(task.layer);
  }
}

void StepRunner::update_selection_bias(int layer) {
  std::vector<float>& bias = parameters_.layer(layer).moe.selection_bias;
  if (bias.empty()) {
    return;
  }
  const StepResult step = result();
  const auto& loads =
      step.expert_loads[static_cast<std::size_t>(sparse_index_[static_cast<std::size_t>(layer)])];
  double mean = 0.0;
  for (const std::int64_t load : loads) {
    mean += static_cast<double>(load) / static_cast<double>(loads.size());
  }
  for (std::size_t e = 0; e < bias.size(); ++e) {
    const double excess = static_cast<double>(loads[e]) - mean;
    bias[e] -= static_cast<float>(options_.bias_update_rate * (excess > 0 ? 1.0 : excess < 0 ? -1.0 : 0.0));
  }
}

}  // namespace expedite::model
