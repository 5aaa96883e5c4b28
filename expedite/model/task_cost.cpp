#include "expedite/model/task_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "expedite/base/error.h"
#include "expedite/model/engine.h"

namespace expedite::model {

using schedule::Op;
using schedule::Pass;
using schedule::Task;

namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

double real(std::int64_t number) {
  return static_cast<double>(number);
}

/// Places among the sparse layers, -1 of a dense one.
std::int64_t sparse_index(const ModelConfig& config, std::int64_t layer) {
  return config.sparse[at(layer)] ? std::count(config.sparse.begin(), config.sparse.begin() + layer, true)
                                  : -1;
}

/// Columns of what latent attention multiplies.
struct LatentSizes {
  double hidden;
  double query;
  double query_rank;
  double rank;
  double compressed;  // of the first product: the query or what it is compressed to, and the rest
  double expanded;    // keys without position, and values
  double key_value;   // whole keys, and values

  explicit LatentSizes(const ModelConfig& config)
      : hidden(real(config.hidden_size)),
        query(real(config.query_size())),
        query_rank(real(config.q_lora_rank)),
        rank(real(config.kv_lora_rank)),
        compressed((config.q_lora_rank > 0 ? query_rank : query) + real(config.compressed_size())),
        expanded(real(config.heads * (config.qk_nope_head_dim + config.value_dim))),
        key_value(real(config.kv_size() + config.value_size())) {}
};

}  // namespace

TaskCosts::TaskCosts(StepCase step, const cost::Cluster& cluster)
    : step_(std::move(step)),
      spec_(step_spec(step_.config, step_.dtype, step_.plan, step_.placement, 0, step_.shape)),
      cluster_(cluster),
      tokens_(real(step_.shape.tokens)),
      sequences_(tokens_ / real(step_.sequence_length)) {
  for (const std::vector<double>& of_layer : step_.expert_loads) {
    require(std::ssize(of_layer) == step_.config.experts, "loads of {} experts, where a layer has {}",
            of_layer.size(), step_.config.experts);
  }
  const auto sparse = std::ranges::count(step_.config.sparse, true);
  require(step_.expert_loads.empty() || std::ssize(step_.expert_loads) == sparse,
          "expert loads of {} layers, where {} have experts", step_.expert_loads.size(), sparse);
  const cost::Device& device = cluster.devices.front();
  require(!device.kernels.empty(),
          "the cluster {} has no kernels: it was measured by another version, or is not measured at all; run "
          "expedite probe",
          cluster.name);
  for (const cost::KernelTimes& times : device.kernels) {
    kernels_.emplace(std::pair(times.kernel, times.dtype), &times);
  }
  for (int rank = 0; rank < step_.placement.layout.expert_parallel_size(); ++rank) {
    no_memory_.push_back(std::make_unique<MemoryPool>());
    parameters_.push_back(std::make_unique<Parameters>(
        step_.config, step_.dtype, expert_shard(step_.config, step_.placement.layout, rank), State::shapes,
        *no_memory_.back()));
  }
  for (int rank = 0; rank < step_.ranks(); ++rank) {
    std::vector<ExpectedRows>& of_layers = rows_.emplace_back();
    for (std::int64_t layer = 0; layer < step_.config.layers; ++layer) {
      if (step_.config.sparse[at(layer)]) {
        of_layers.emplace_back(step_, layer, rank);
      }
    }
  }
}

double TaskCosts::kernel(std::string_view name, DType dtype, std::initializer_list<double> sizes) const {
  const auto found = kernels_.find(std::pair(std::string(name), dtype));
  require(found != kernels_.end(), "the cluster {} has no times of the kernel {} of {}: run expedite probe",
          cluster_.name, name, name_of(dtype));
  return seconds_at(*found->second, std::span(sizes.begin(), sizes.size()));
}

const ExpectedRows& TaskCosts::rows(int rank, int layer) const {
  return rows_[at(rank)][at(sparse_index(step_.config, layer))];
}

/// Of the task's first chunk.
double TaskCosts::chunk_tokens(const Task& task) const {
  const auto bounds = schedule::chunk_bounds(step_.shape.tokens, spec_.ep_plan.chunking);
  const std::size_t first = at(std::max(task.chunk, 0));
  return real(bounds[first + 1] - bounds[first]);
}

cost::TaskCost TaskCosts::operator()(const schedule::Schedule& schedule, const Task& task) const {
  if (task.communication) {
    return communication(schedule, task);
  }
  return {.seconds = compute_seconds(schedule.rank, task) + cluster_.task_seconds};
}

double TaskCosts::compute_seconds(int rank, const Task& task) const {
  const double hidden = real(step_.config.hidden_size);
  switch (task.op) {
    case Op::embedding:
      return kernel(task.pass == Pass::forward ? "embedding" : "embedding_backward", {tokens_, hidden});
    case Op::attention:
      return attention(task);
    case Op::dense_mlp:
      return dense_mlp(task);
    case Op::router:
      return router(task);
    case Op::shared_experts:
      return shared_experts(task);
    case Op::permute:
      return permute(rank, task);
    case Op::unpermute:
      return unpermute(rank, task);
    case Op::experts:
      return experts(rank, task);
    case Op::node_sum: {
      const ExpectedRows& layer = rows(rank, task.layer);
      const double arrived = layer.arrived(chunk_tokens(task));
      const double summands = layer.summands_back();
      return kernel("sum_rows", {arrived, hidden, summands}) +
             (task.pass == Pass::forward ? 0.0
                                         : kernel("sum_rows", DType::f32,
                                                  {arrived, real(step_.config.experts_per_token), summands}));
    }
    case Op::loss:
      return loss();
    case Op::gradient_norm:
      return gradient_norm(rank);
    case Op::optimizer:
      return optimizer(rank, task.layer);
    default:
      fail("{} is not a compute task of a training step", label(task));
  }
}

// ---- Attention and dense layers

double TaskCosts::attention(const Task& task) const {
  const bool latent = step_.config.attention == architecture::AttentionKind::latent;
  switch (task.pass) {
    case Pass::forward:
      return (latent ? latent_forward() : grouped_query_forward()) + scores("attention", task.layer) +
             attention_output();
    case Pass::input_grad:
      return kernel("matmul_input_grad",
                    {tokens_, real(step_.config.context_size()), real(step_.config.hidden_size)}) +
             scores("attention_backward", task.layer) +
             (latent ? latent_input_grad() : grouped_query_input_grad()) + norm_backward();
    default:
      return latent ? latent_weight_grad() : grouped_query_weight_grad();
  }
}

namespace {

/// The part of a causal square of scores that lies inside a window.
double window_share(double window, double length) {
  if (window <= 0.0 || window >= length) {
    return 1.0;
  }
  return (length * window - window * window / 2.0) / (length * length / 2.0);
}

}  // namespace

/// Scores and what they weigh, of all heads. Measured with values as long as keys.
double TaskCosts::scores(std::string_view kernel_name, int layer) const {
  const ModelConfig& config = step_.config;
  const double length = real(step_.sequence_length);
  const double values = real(config.head_dim + config.value_dim) / (2.0 * real(config.head_dim));
  return sequences_ * real(config.heads) * kernel(kernel_name, {length, real(config.head_dim)}) * values *
         window_share(real(config.window(layer)), length);
}

double TaskCosts::attention_output() const {
  const ModelConfig& config = step_.config;
  const double hidden = real(config.hidden_size);
  return kernel("matmul", {tokens_, hidden, real(config.context_size())}) + bias(config.output_bias, hidden) +
         kernel("add", {tokens_, hidden});
}

/// A bias reads and writes as much as the addition of rows writes.
double TaskCosts::bias(bool there, double columns) const {
  return there ? kernel("add", {tokens_, columns}) : 0.0;
}

double TaskCosts::norm_backward() const {
  const double hidden = real(step_.config.hidden_size);
  return kernel("rms_norm_backward", {tokens_, hidden}) + kernel("add", {tokens_, hidden});
}

// ---- Grouped-query attention

/// Of all query and key heads.
double TaskCosts::heads_norms(std::string_view kernel_name) const {
  const ModelConfig& config = step_.config;
  switch (config.qk_norm) {
    case architecture::QkNorm::head:
      return kernel(kernel_name, {tokens_ * real(config.heads), real(config.head_dim)}) +
             kernel(kernel_name, {tokens_ * real(config.kv_heads), real(config.head_dim)});
    case architecture::QkNorm::whole:
      return kernel(kernel_name, {tokens_, real(config.query_size())}) +
             kernel(kernel_name, {tokens_, real(config.kv_size())});
    default:
      return 0.0;
  }
}

double TaskCosts::rotary() const {
  const ModelConfig& config = step_.config;
  return kernel("rotary", {tokens_, real(config.heads), real(config.head_dim)}) +
         kernel("rotary", {tokens_, real(config.kv_heads), real(config.head_dim)});
}

double TaskCosts::grouped_query_forward() const {
  const ModelConfig& config = step_.config;
  const double hidden = real(config.hidden_size);
  // A query-key norm copies what it normalises first.
  const double copy = config.qk_norm != architecture::QkNorm::none
                          ? kernel("gather_rows", {tokens_, real(config.query_size() + config.kv_size())})
                          : 0.0;
  return kernel("rms_norm", {tokens_, hidden}) +
         kernel("matmul", {tokens_, real(config.qkv_size()), hidden}) +
         bias(config.qkv_bias, real(config.qkv_size())) + copy + heads_norms("rms_norm") + rotary();
}

double TaskCosts::grouped_query_input_grad() const {
  const ModelConfig& config = step_.config;
  return rotary() + heads_norms("rms_norm_backward") +
         kernel("matmul_input_grad", {tokens_, real(config.hidden_size), real(config.qkv_size())});
}

double TaskCosts::grouped_query_weight_grad() const {
  const ModelConfig& config = step_.config;
  const double hidden = real(config.hidden_size);
  return kernel("matmul_weight_grad", {hidden, real(config.context_size()), tokens_}) +
         kernel("matmul_weight_grad", {real(config.qkv_size()), hidden, tokens_}) +
         bias(config.output_bias, hidden) + bias(config.qkv_bias, real(config.qkv_size()));
}

// ---- Latent attention

double TaskCosts::latent_rotary() const {
  const ModelConfig& config = step_.config;
  return kernel("rotary", {tokens_, real(config.heads), real(config.qk_rope_head_dim)}) +
         kernel("rotary", {tokens_, 1.0, real(config.qk_rope_head_dim)});
}

double TaskCosts::latent_forward() const {
  const ModelConfig& config = step_.config;
  const LatentSizes size(config);
  double seconds =
      kernel("rms_norm", {tokens_, size.hidden}) + kernel("matmul", {tokens_, size.compressed, size.hidden}) +
      bias(config.qkv_bias, size.compressed) + kernel("gather_rows", {tokens_, size.compressed}) +
      kernel("rms_norm", {tokens_, size.rank}) + kernel("matmul", {tokens_, size.expanded, size.rank}) +
      latent_rotary() + kernel("gather_rows", {tokens_, size.key_value});
  if (config.q_lora_rank > 0) {
    seconds += kernel("rms_norm", {tokens_, size.query_rank}) +
               kernel("matmul", {tokens_, size.query, size.query_rank});
  }
  return seconds;
}

double TaskCosts::latent_input_grad() const {
  const ModelConfig& config = step_.config;
  const LatentSizes size(config);
  double seconds = kernel("gather_rows", {tokens_, size.key_value}) + latent_rotary() +
                   kernel("matmul_input_grad", {tokens_, size.rank, size.expanded}) +
                   kernel("rms_norm_backward", {tokens_, size.rank}) +
                   kernel("matmul_input_grad", {tokens_, size.hidden, size.compressed});
  if (config.q_lora_rank > 0) {
    seconds += kernel("matmul_input_grad", {tokens_, size.query_rank, size.query}) +
               kernel("rms_norm_backward", {tokens_, size.query_rank});
  }
  return seconds;
}

double TaskCosts::latent_weight_grad() const {
  const ModelConfig& config = step_.config;
  const LatentSizes size(config);
  double seconds = kernel("matmul_weight_grad", {size.hidden, real(config.context_size()), tokens_}) +
                   kernel("matmul_weight_grad", {size.expanded, size.rank, tokens_}) +
                   kernel("matmul_weight_grad", {size.compressed, size.hidden, tokens_}) +
                   bias(config.output_bias, size.hidden) + bias(config.qkv_bias, size.compressed);
  if (config.q_lora_rank > 0) {
    seconds += kernel("matmul_weight_grad", {size.query, size.query_rank, tokens_});
  }
  return seconds;
}

double TaskCosts::dense_mlp(const Task& task) const {
  const double hidden = real(step_.config.hidden_size);
  const double ffn = real(step_.config.intermediate_size);
  const bool mlp_bias = step_.config.mlp_bias;
  switch (task.pass) {
    case Pass::forward:
      return kernel("rms_norm", {tokens_, hidden}) + kernel("matmul", {tokens_, 2.0 * ffn, hidden}) +
             bias(mlp_bias, 2.0 * ffn) + kernel("swiglu", {tokens_, ffn}) +
             kernel("matmul", {tokens_, hidden, ffn}) + bias(mlp_bias, hidden) +
             kernel("add", {tokens_, hidden});
    case Pass::input_grad:
      return kernel("matmul_input_grad", {tokens_, ffn, hidden}) + kernel("swiglu_backward", {tokens_, ffn}) +
             kernel("matmul_input_grad", {tokens_, hidden, 2.0 * ffn}) +
             kernel("rms_norm_backward", {tokens_, hidden}) + kernel("add", {tokens_, hidden});
    default:
      return kernel("matmul_weight_grad", {hidden, ffn, tokens_}) +
             kernel("matmul_weight_grad", {2.0 * ffn, hidden, tokens_}) + bias(mlp_bias, hidden) +
             bias(mlp_bias, 2.0 * ffn);
  }
}

// ---- Router, shared experts

double TaskCosts::router(const Task& task) const {
  const ModelConfig& config = step_.config;
  const double hidden = real(config.hidden_size);
  const double all = real(config.experts);
  const double topk = real(config.experts_per_token);
  const bool sequence_loss = step_.balance.aux_loss == AuxLoss::sequence;
  const double length = real(step_.sequence_length);
  // What a layer of bf16 hands to the router's f32 products.
  const double convert = step_.dtype == DType::f32 ? 0.0 : kernel("rms_norm", DType::f32, {tokens_, hidden});
  if (task.pass == Pass::forward) {
    const bool alone = !spec_.expert_parallel();
    return kernel("rms_norm", {tokens_, hidden}) + convert +
           kernel("matmul", DType::f32, {tokens_, all, hidden}) +
           kernel("route", DType::f32, {tokens_, all, topk}) +
           kernel("dispatch_plan", DType::f32, {tokens_, all, topk}) +
           (alone ? kernel("dispatch_plan_complete", DType::f32, {tokens_, all, topk}) : 0.0) +
           (sequence_loss ? sequences_ * kernel("balance_loss", DType::f32, {length, all, topk}) : 0.0);
  }
  double losses = 0.0;
  if (step_.balance.aux_loss == AuxLoss::sequence) {
    losses = sequences_ * kernel("balance_backward", DType::f32, {length, all, topk});
  } else if (step_.balance.aux_loss == AuxLoss::batch) {
    losses = kernel("balance_loss", DType::f32, {tokens_, all, topk}) +
             kernel("balance_backward", DType::f32, {tokens_, all, topk});
  }
  return kernel("route_backward", DType::f32, {tokens_, all, topk}) + losses + convert +
         kernel("matmul_weight_grad", DType::f32, {all, hidden, tokens_}) +
         kernel("matmul_input_grad", DType::f32, {tokens_, hidden, all}) +
         kernel("add", DType::f32, {tokens_, hidden}) + kernel("rms_norm_backward", {tokens_, hidden}) +
         kernel("add", {tokens_, hidden});
}

double TaskCosts::shared_experts(const Task& task) const {
  const ModelConfig& config = step_.config;
  const double hidden = real(config.hidden_size);
  const double ffn = real(config.shared_expert_intermediate_size);
  if (task.pass == Pass::forward) {
    const int early = spec_.ep_plan.unpacked_early();
    const auto bounds = schedule::chunk_bounds(step_.shape.tokens, spec_.ep_plan.chunking);
    const double split = early > 0 ? real(bounds[at(early)]) : std::floor(tokens_ / 2.0);
    const double tokens = task.chunk == 0 ? split : task.chunk == 1 ? tokens_ - split : tokens_;
    return kernel("matmul", {tokens, 2.0 * ffn, hidden}) +
           (config.shared_expert_gate ? kernel("matmul", {tokens, 1.0, hidden}) : 0.0) +
           kernel("swiglu", {tokens, ffn}) + kernel("matmul", {tokens, hidden, ffn}) +
           kernel("add", {tokens, hidden});
  }
  if (task.pass == Pass::input_grad) {
    return kernel("matmul_input_grad", {tokens_, ffn, hidden}) + kernel("swiglu_backward", {tokens_, ffn}) +
           kernel("matmul_input_grad", {tokens_, hidden, 2.0 * ffn}) +
           (config.shared_expert_gate ? kernel("matmul_input_grad", DType::f32, {tokens_, hidden, 1.0}) +
                                            kernel("add", DType::f32, {tokens_, hidden})
                                      : 0.0);
  }
  return kernel("matmul_weight_grad", {hidden, ffn, tokens_}) +
         kernel("matmul_weight_grad", {2.0 * ffn, hidden, tokens_}) +
         (config.shared_expert_gate ? kernel("matmul_weight_grad", DType::f32, {1.0, hidden, tokens_}) : 0.0);
}

// ---- Routed rows

double TaskCosts::permute(int rank, const Task& task) const {
  const double hidden = real(step_.config.hidden_size);
  const double topk = real(step_.config.experts_per_token);
  const ExpectedRows& layer = rows(rank, task.layer);
  const double tokens = chunk_tokens(task);
  if (task.pass == Pass::input_grad) {
    return kernel("sum_rows", {tokens, hidden, layer.summands_token()}) +
           kernel("sum_rows", DType::f32, {tokens, topk, layer.summands_token()});
  }
  const double sent = layer.sent(tokens);
  const double shared = layer.shared(tokens);
  return kernel("gather_rows", {sent, hidden}) + kernel("gather_rows", DType::f32, {sent, topk}) +
         kernel("gather_rows", {shared, hidden}) + kernel("gather_rows", DType::f32, {shared, topk});
}

double TaskCosts::unpermute(int rank, const Task& task) const {
  const double hidden = real(step_.config.hidden_size);
  const ExpectedRows& layer = rows(rank, task.layer);
  const double tokens = chunk_tokens(task);
  if (task.pass == Pass::input_grad) {
    return kernel("gather_rows", {layer.sent(tokens), hidden}) +
           kernel("gather_rows", {layer.shared(tokens), hidden});
  }
  return kernel("sum_rows", {tokens, hidden, layer.summands_token() + 1.0});  // and the residual
}

/// Adds up what a rank's experts made, for whoever adds it to the rest.
double TaskCosts::sum_for_others(const ExpectedRows& layer, double tokens, bool forward) const {
  if (!spec_.expert_parallel()) {
    return 0.0;
  }
  const double count = spec_.shares_rows() ? layer.summed(tokens) : layer.arrived(tokens);
  const double sums = kernel("sum_rows", {count, real(step_.config.hidden_size), layer.summands_back()});
  return forward ? sums
                 : sums + kernel("sum_rows", DType::f32,
                                 {count, real(step_.config.experts_per_token), layer.summands_back()});
}

/// Of an expert's rows.
double TaskCosts::row_bias(double rows, double columns) const {
  return step_.config.mlp_bias ? kernel("add", {rows, columns}) : 0.0;
}

double TaskCosts::experts(int rank, const Task& task) const {
  const double hidden = real(step_.config.hidden_size);
  const double ffn = real(step_.config.moe_intermediate_size);
  const bool forward = task.pass == Pass::forward;
  const ExpectedRows& layer = rows(rank, task.layer);
  double tokens = chunk_tokens(task);
  if (task.pass == Pass::weight_grad) {  // of several chunks, padded each
    const auto bounds = schedule::chunk_bounds(step_.shape.tokens, spec_.ep_plan.chunking);
    std::vector<double> together;
    for (int c = std::max(task.chunk, 0); c < std::max(task.chunk, 0) + task.chunks; ++c) {
      const std::vector<double> of_chunk = layer.of_experts(real(bounds[at(c) + 1] - bounds[at(c)]));
      together.resize(of_chunk.size());
      std::ranges::transform(together, of_chunk, together.begin(), std::plus<>());
    }
    double seconds = 0.0;
    for (const double rows : together) {
      seconds += kernel("grouped_matmul_weight_grad", {rows, hidden, ffn}) +
                 kernel("grouped_matmul_weight_grad", {rows, 2.0 * ffn, hidden}) + row_bias(rows, hidden) +
                 row_bias(rows, 2.0 * ffn);
    }
    return seconds;
  }
  double seconds = 0.0;
  double all = 0.0;
  for (const double rows : layer.of_experts(tokens)) {
    all += rows;
    switch (task.pass) {
      case Pass::forward:
        seconds += kernel("grouped_matmul", {rows, 2.0 * ffn, hidden}) + row_bias(rows, 2.0 * ffn) +
                   kernel("swiglu", {rows, ffn}) + kernel("grouped_matmul", {rows, hidden, ffn}) +
                   row_bias(rows, hidden);
        break;
      case Pass::recompute:
        seconds += kernel("swiglu", {rows, ffn});
        if (spec_.ep_plan.recompute == schedule::MoeRecompute::full) {
          seconds += kernel("grouped_matmul", {rows, 2.0 * ffn, hidden}) + row_bias(rows, 2.0 * ffn);
        }
        break;
      default:
        seconds += kernel("grouped_matmul_input_grad", {rows, hidden, ffn}) +
                   kernel("swiglu_backward", {rows, ffn}) + row_bias(rows, hidden) +
                   kernel("grouped_matmul_input_grad", {rows, 2.0 * ffn, hidden});
    }
  }
  return task.pass == Pass::recompute
             ? seconds
             : seconds + kernel("gather_rows", {all, hidden}) + sum_for_others(layer, tokens, forward);
}

// ---- Head and optimizer

double TaskCosts::loss() const {
  const double hidden = real(step_.config.hidden_size);
  return kernel("rms_norm", {tokens_, hidden}) +
         kernel("linear_cross_entropy", {tokens_, hidden, real(step_.config.vocab_size)}) +
         kernel("rms_norm_backward", {tokens_, hidden});
}

std::int64_t TaskCosts::bucket_elements(int rank, int layer, bool expert) const {
  Parameters& parameters = *parameters_[at(step_.placement.layout.expert_parallel_rank(rank))];
  const Bucket* const bucket = parameters.bucket(layer, expert);
  std::int64_t elements = 0;
  if (bucket != nullptr) {
    for (const Parameter* parameter : bucket->parameters) {
      elements += parameter->shape.elements();
    }
  }
  return elements;
}

double TaskCosts::gradient_norm(int rank) const {
  double seconds = 0.0;
  for (int layer = -1; layer <= static_cast<int>(step_.config.layers); ++layer) {
    for (const bool expert : {false, true}) {
      const bool counted = expert ? step_.placement.layout.replica(rank) == 0 : rank == 0;
      if (counted) {
        seconds += kernel("sum_of_squares", DType::f32, {real(bucket_elements(rank, layer, expert))});
      }
    }
  }
  return seconds;
}

double TaskCosts::optimizer(int rank, int layer) const {
  Parameters& parameters = *parameters_[at(step_.placement.layout.expert_parallel_rank(rank))];
  double seconds = 0.0;
  for (const bool expert : {false, true}) {
    if (const Bucket* const bucket = parameters.bucket(layer, expert)) {
      for (const Parameter* parameter : bucket->parameters) {
        seconds += kernel("adamw", {real(parameter->shape.elements())});
      }
    }
  }
  return seconds;
}

}  // namespace expedite::model
