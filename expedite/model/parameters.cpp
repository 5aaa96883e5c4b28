#include "expedite/model/parameters.h"

#include <algorithm>

#include "expedite/architecture/parameter_count.h"
#include "expedite/base/random.h"
#include "expedite/hf/names.h"
#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/parallel.h"

namespace expedite::model {
namespace {

// Tensors start at a cache line within their bucket.
constexpr std::int64_t kAlignedElements = MemoryPool::kAlignment / static_cast<std::int64_t>(sizeof(float));

std::int64_t padded(std::int64_t elements) {
  return (elements + kAlignedElements - 1) / kAlignedElements * kAlignedElements;
}

}  // namespace

Parameters::Parameters(const ModelConfig& config, DType dtype, ExpertShard shard, State state,
                       MemoryPool& pool)
    : config_(config), dtype_(dtype), shard_(std::move(shard)), state_(state) {
  require(dtype == DType::f32 || dtype == DType::bf16, "a model is f32 or bf16, not {}", name_of(dtype));
  const int layers = static_cast<int>(config.layers);
  embedding_ = add(-1, false, {config.vocab_size, config.hidden_size}, true, dtype);
  layers_.resize(static_cast<std::size_t>(layers));
  for (int layer = 0; layer < layers; ++layer) {
    plan_attention(layer);
    plan_mlp(layer);
  }
  final_norm_ = add(layers, false, {config.hidden_size}, false, dtype);
  head_ = config.tie_word_embeddings
              ? embedding_
              : add(layers, false, {config.vocab_size, config.hidden_size}, true, dtype);
  allocate(pool);
  locate_tensors();
}

void Parameters::plan_attention(int layer) {
  AttentionWeights& attention = layers_[static_cast<std::size_t>(layer)].attention;
  const std::int64_t hidden = config_.hidden_size;
  attention.norm = add(layer, false, {hidden}, false, dtype_);
  if (config_.attention == architecture::AttentionKind::latent) {
    return plan_latent_attention(layer);
  }
  attention.qkv = add(layer, false, {config_.qkv_size(), hidden}, true, dtype_);
  attention.output = add(layer, false, {hidden, config_.query_size()}, true, dtype_);
  if (config_.qkv_bias) {
    attention.qkv_bias = add(layer, false, {config_.qkv_size()}, false, dtype_);
  }
  if (config_.output_bias) {
    attention.output_bias = add(layer, false, {hidden}, false, dtype_);
  }
  if (config_.qk_norm != architecture::QkNorm::none) {
    const bool whole = config_.qk_norm == architecture::QkNorm::whole;
    attention.query_norm =
        add(layer, false, {whole ? config_.query_size() : config_.head_dim}, false, dtype_);
    attention.key_norm = add(layer, false, {whole ? config_.kv_size() : config_.head_dim}, false, dtype_);
  }
  if (config_.attention_sinks) {
    attention.sinks = add(layer, false, {config_.heads}, false, dtype_);
  }
}

void Parameters::plan_latent_attention(int layer) {
  AttentionWeights& attention = layers_[static_cast<std::size_t>(layer)].attention;
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t rank = config_.q_lora_rank;
  const std::int64_t query = rank > 0 ? rank : config_.query_size();
  attention.compress = add(layer, false, {query + config_.compressed_size(), hidden}, true, dtype_);
  if (config_.qkv_bias) {
    attention.compress_bias = add(layer, false, {rank + config_.compressed_size()}, false, dtype_);
  }
  if (rank > 0) {
    attention.query_norm = add(layer, false, {rank}, false, dtype_);
    attention.query_expand = add(layer, false, {config_.query_size(), rank}, true, dtype_);
  }
  attention.key_norm = add(layer, false, {config_.kv_lora_rank}, false, dtype_);
  attention.expand = add(
      layer, false, {config_.heads * (config_.qk_nope_head_dim + config_.value_dim), config_.kv_lora_rank},
      true, dtype_);
  attention.output = add(layer, false, {hidden, config_.context_size()}, true, dtype_);
  if (config_.output_bias) {
    attention.output_bias = add(layer, false, {hidden}, false, dtype_);
  }
}

void Parameters::plan_mlp(int layer) {
  LayerWeights& weights = layers_[static_cast<std::size_t>(layer)];
  const std::int64_t hidden = config_.hidden_size;
  weights.mlp_norm = add(layer, false, {hidden}, false, dtype_);
  if (!config_.sparse[static_cast<std::size_t>(layer)]) {
    weights.dense.gate_up = add(layer, false, {2 * config_.intermediate_size, hidden}, true, dtype_);
    weights.dense.down = add(layer, false, {hidden, config_.intermediate_size}, true, dtype_);
    if (config_.mlp_bias) {
      weights.dense.gate_up_bias = add(layer, false, {2 * config_.intermediate_size}, false, dtype_);
      weights.dense.down_bias = add(layer, false, {hidden}, false, dtype_);
    }
    return;
  }
  plan_experts(layer);
  if (const std::int64_t shared = config_.shared_expert_intermediate_size; shared > 0) {
    weights.shared.gate_up = add(layer, false, {2 * shared, hidden}, true, dtype_);
    weights.shared.down = add(layer, false, {hidden, shared}, true, dtype_);
    if (config_.shared_expert_gate) {
      weights.shared.gate = add(layer, false, {1, hidden}, true, dtype_);
    }
  }
}

void Parameters::plan_experts(int layer) {
  MoeWeights& moe = layers_[static_cast<std::size_t>(layer)].moe;
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t ffn = config_.moe_intermediate_size;
  moe.router = add(layer, false, {config_.experts, hidden}, true, DType::f32);
  moe.gate_up = add(layer, true, {shard_.local(), 2 * ffn, hidden}, true, dtype_);
  moe.down = add(layer, true, {shard_.local(), hidden, ffn}, true, dtype_);
  if (config_.router_bias) {
    moe.router_bias = add(layer, false, {config_.experts}, false, DType::f32);
  }
  if (config_.mlp_bias) {
    moe.gate_up_bias = add(layer, true, {shard_.local(), 2 * ffn}, false, dtype_);
    moe.down_bias = add(layer, true, {shard_.local(), hidden}, false, dtype_);
  }
  if (config_.expert_bias) {
    moe.selection_bias.assign(static_cast<std::size_t>(config_.experts), 0.0F);
  }
}

Parameter* Parameters::add(int layer, bool expert, Shape shape, bool decay, DType dtype) {
  Bucket* bucket = this->bucket(layer, expert);
  if (bucket == nullptr) {
    bucket = &buckets_.emplace_back();
    bucket->layer = layer;
    bucket->expert = expert;
  }
  Parameter* parameter = parameters_.emplace_back(std::make_unique<Parameter>()).get();
  parameter->shape = shape;
  parameter->decay = decay;
  parameter->weight = TensorView(nullptr, dtype, shape);
  bucket->parameters.push_back(parameter);
  return parameter;
}

Bucket* Parameters::bucket(int layer, bool expert) {
  for (Bucket& bucket : buckets_) {
    if (bucket.layer == layer && bucket.expert == expert) {
      return &bucket;
    }
  }
  return nullptr;
}

void Parameters::allocate(MemoryPool& pool) {
  if (state_ == State::shapes) {
    return;
  }
  const auto take = [&](std::int64_t elements, DType dtype, MemoryCategory category) {
    Buffer& buffer = storage_.emplace_back(pool.allocate(elements * size_of(dtype), category));
    const TensorView view = buffer.view(dtype, {elements});
    kernels::fill_zero(view);
    return view;
  };
  for (Bucket& bucket : buckets_) {
    std::int64_t total = 0;
    for (const Parameter* parameter : bucket.parameters) {
      total += padded(parameter->shape.elements());
    }
    TensorView exp_avg;
    TensorView exp_avg_sq;
    if (state_ >= State::gradients) {
      bucket.gradients = take(total, DType::f32, MemoryCategory::gradients);
    }
    if (state_ == State::training) {
      exp_avg = take(total, DType::f32, MemoryCategory::optimizer);
      exp_avg_sq = take(total, DType::f32, MemoryCategory::optimizer);
    }
    std::int64_t begin = 0;
    for (Parameter* parameter : bucket.parameters) {
      const std::int64_t elements = parameter->shape.elements();
      const auto part = [&](const TensorView& whole) {
        return whole.slice(begin, elements).reshape(parameter->shape);
      };
      const DType dtype = parameter->weight.dtype();
      parameter->weight = take(elements, dtype, MemoryCategory::weights).reshape(parameter->shape);
      if (state_ >= State::gradients) {
        parameter->gradient = part(bucket.gradients);
      }
      if (state_ == State::training) {
        parameter->exp_avg = part(exp_avg);
        parameter->exp_avg_sq = part(exp_avg_sq);
        parameter->master =
            dtype == DType::f32
                ? parameter->weight
                : take(elements, DType::f32, MemoryCategory::optimizer).reshape(parameter->shape);
      }
      begin += padded(elements);
    }
  }
}

/// visit(expert, its place on its rank, the rank).
template <typename Visit>
void Parameters::for_each_expert(const Visit& visit) const {
  for (int owner = 0; owner < shard_.ep_size(); ++owner) {
    const std::int64_t begin = shard_.first_expert[static_cast<std::size_t>(owner)];
    const std::int64_t end = shard_.first_expert[static_cast<std::size_t>(owner) + 1];
    for (std::int64_t expert = begin; expert < end; ++expert) {
      visit(expert, expert - begin, owner);
    }
  }
}

void Parameters::locate_whole(const std::string& name, Parameter* parameter) {
  locate_rows(name, parameter, 0, parameter->shape[0]);
}

void Parameters::locate_rows(const std::string& name, Parameter* parameter, std::int64_t first,
                             std::int64_t count) {
  const bool vector = parameter->shape.rank() == 1;
  const std::int64_t columns = vector ? 1 : parameter->shape[1];
  const TensorPart part = {.parameter = parameter,
                           .offset = first * columns,
                           .rows = vector ? 1 : count,
                           .columns = vector ? count : columns,
                           .row_stride = columns};
  tensors_.push_back({.name = name, .shape = vector ? Shape{count} : Shape{count, columns}, .parts = {part}});
}

void Parameters::locate_tensors() {
  locate_whole(hf::ParameterNames::embedding(), embedding_);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i);
    locate_whole(hf::ParameterNames::input_norm(layer), layers_[i].attention.norm);
    if (config_.attention == architecture::AttentionKind::latent) {
      locate_latent_attention(layer);
    } else {
      locate_attention(layer);
    }
    locate_whole(hf::ParameterNames::post_attention_norm(layer), layers_[i].mlp_norm);
    if (!config_.sparse[i]) {
      locate_dense(layer);
      continue;
    }
    locate_router(layer);
    if (hf::ParameterNames(config_.family).fused_experts()) {
      locate_fused_experts(layer);
    } else {
      locate_experts(layer);
    }
    locate_shared_expert(layer);
  }
  locate_whole(hf::ParameterNames::final_norm(), final_norm_);
  if (!config_.tie_word_embeddings) {
    locate_whole(hf::ParameterNames::head(), head_);
  }
}

void Parameters::locate_attention(std::int64_t layer) {
  using Names = hf::ParameterNames;
  AttentionWeights& attention = layers_[static_cast<std::size_t>(layer)].attention;
  const std::int64_t query = config_.query_size();
  const std::int64_t key = config_.kv_size();
  const std::int64_t value = config_.value_size();
  locate_rows(Names::attention_weight(layer, "q"), attention.qkv, 0, query);
  locate_rows(Names::attention_weight(layer, "k"), attention.qkv, query, key);
  locate_rows(Names::attention_weight(layer, "v"), attention.qkv, query + key, value);
  locate_whole(Names::attention_weight(layer, "o"), attention.output);
  if (attention.qkv_bias != nullptr) {
    locate_rows(Names::attention_bias(layer, "q"), attention.qkv_bias, 0, query);
    locate_rows(Names::attention_bias(layer, "k"), attention.qkv_bias, query, key);
    locate_rows(Names::attention_bias(layer, "v"), attention.qkv_bias, query + key, value);
  }
  if (attention.output_bias != nullptr) {
    locate_whole(Names::attention_bias(layer, "o"), attention.output_bias);
  }
  if (attention.query_norm != nullptr) {
    locate_whole(Names::query_norm(layer), attention.query_norm);
    locate_whole(Names::key_norm(layer), attention.key_norm);
  }
  if (attention.sinks != nullptr) {
    locate_whole(Names::sinks(layer), attention.sinks);
  }
}

void Parameters::locate_latent_attention(std::int64_t layer) {
  using Names = hf::ParameterNames;
  AttentionWeights& attention = layers_[static_cast<std::size_t>(layer)].attention;
  const std::int64_t rank = config_.q_lora_rank;
  const std::int64_t query = rank > 0 ? rank : config_.query_size();
  locate_rows(Names::attention_weight(layer, rank > 0 ? "q_a" : "q"), attention.compress, 0, query);
  if (rank > 0) {
    if (attention.compress_bias != nullptr) {
      locate_rows(Names::attention_bias(layer, "q_a"), attention.compress_bias, 0, rank);
    }
    locate_whole(Names::latent_norm(layer, "q_a"), attention.query_norm);
    locate_whole(Names::attention_weight(layer, "q_b"), attention.query_expand);
  }
  locate_rows(Names::latent_compress_weight(layer), attention.compress, query, config_.compressed_size());
  if (attention.compress_bias != nullptr) {
    locate_rows(Names::latent_compress_bias(layer), attention.compress_bias, rank, config_.compressed_size());
  }
  locate_whole(Names::latent_norm(layer, "kv_a"), attention.key_norm);
  locate_whole(Names::attention_weight(layer, "kv_b"), attention.expand);
  locate_whole(Names::attention_weight(layer, "o"), attention.output);
  if (attention.output_bias != nullptr) {
    locate_whole(Names::attention_bias(layer, "o"), attention.output_bias);
  }
}

void Parameters::locate_dense(std::int64_t layer) {
  using Names = hf::ParameterNames;
  const DenseWeights& dense = layers_[static_cast<std::size_t>(layer)].dense;
  const std::int64_t ffn = config_.intermediate_size;
  locate_rows(Names::dense_gate(layer), dense.gate_up, 0, ffn);
  locate_rows(Names::dense_up(layer), dense.gate_up, ffn, ffn);
  locate_whole(Names::dense_down(layer), dense.down);
  if (dense.gate_up_bias != nullptr) {
    locate_rows(Names::dense_bias(layer, "gate"), dense.gate_up_bias, 0, ffn);
    locate_rows(Names::dense_bias(layer, "up"), dense.gate_up_bias, ffn, ffn);
    locate_whole(Names::dense_bias(layer, "down"), dense.down_bias);
  }
}

void Parameters::locate_router(std::int64_t layer) {
  const hf::ParameterNames names(config_.family);
  MoeWeights& moe = layers_[static_cast<std::size_t>(layer)].moe;
  locate_whole(names.router(layer), moe.router);
  if (moe.router_bias != nullptr) {
    locate_whole(hf::ParameterNames::router_bias(layer), moe.router_bias);
  }
  if (!moe.selection_bias.empty()) {
    tensors_.push_back(
        {.name = names.selection_bias(layer), .shape = {config_.experts}, .bias = &moe.selection_bias});
  }
}

void Parameters::locate_experts(std::int64_t layer) {
  const hf::ParameterNames names(config_.family);
  const MoeWeights& moe = layers_[static_cast<std::size_t>(layer)].moe;
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t ffn = config_.moe_intermediate_size;
  for_each_expert([&](std::int64_t expert, std::int64_t local, int owner) {
    const auto locate = [&](const std::string& name, std::int64_t rows, std::int64_t columns,
                            Parameter* parameter, std::int64_t offset) {
      const bool here = owner == shard_.ep_rank;
      const TensorPart part = {.parameter = here ? parameter : nullptr,
                               .offset = here ? offset : 0,
                               .rows = rows,
                               .columns = columns,
                               .row_stride = columns,
                               .owner = owner};
      tensors_.push_back({.name = name, .shape = {rows, columns}, .parts = {part}, .expert = true});
    };
    const std::int64_t gate_up = local * 2 * ffn * hidden;
    locate(names.expert_gate(layer, expert), ffn, hidden, moe.gate_up, gate_up);
    locate(names.expert_up(layer, expert), ffn, hidden, moe.gate_up, gate_up + ffn * hidden);
    locate(names.expert_down(layer, expert), hidden, ffn, moe.down, local * hidden * ffn);
  });
}

/// gpt_oss: [E, H, 2F] with gate and up by turns, [E, F, H], and biases [E, 2F] and [E, H].
void Parameters::locate_fused_experts(std::int64_t layer) {
  using Names = hf::ParameterNames;
  const MoeWeights& moe = layers_[static_cast<std::size_t>(layer)].moe;
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t ffn = config_.moe_intermediate_size;
  const std::int64_t experts = config_.experts;
  CheckpointTensor gate_up = {
      .name = Names::fused_experts_gate_up(layer), .shape = {experts, hidden, 2 * ffn}, .expert = true};
  CheckpointTensor gate_up_bias = {
      .name = Names::fused_experts_gate_up_bias(layer), .shape = {experts, 2 * ffn}, .expert = true};
  CheckpointTensor down = {
      .name = Names::fused_experts_down(layer), .shape = {experts, ffn, hidden}, .expert = true};
  CheckpointTensor down_bias = {
      .name = Names::fused_experts_down_bias(layer), .shape = {experts, hidden}, .expert = true};
  for_each_expert([&](std::int64_t expert, std::int64_t local, int owner) {
    const bool here = owner == shard_.ep_rank;
    const auto part = [&](Parameter* parameter, TensorPart lies) {
      lies.parameter = here ? parameter : nullptr;
      lies.offset = here ? lies.offset : 0;
      lies.owner = owner;
      return lies;
    };
    for (const std::int64_t up : {0, 1}) {
      gate_up.parts.push_back(part(moe.gate_up, {.offset = (2 * local + up) * ffn * hidden,
                                                 .rows = ffn,
                                                 .columns = hidden,
                                                 .begin = expert * hidden * 2 * ffn + up,
                                                 .row_stride = 2,
                                                 .column_stride = 2 * ffn}));
      gate_up_bias.parts.push_back(part(moe.gate_up_bias, {.offset = (2 * local + up) * ffn,
                                                           .columns = ffn,
                                                           .begin = expert * 2 * ffn + up,
                                                           .column_stride = 2}));
    }
    down.parts.push_back(part(moe.down, {.offset = local * hidden * ffn,
                                         .rows = hidden,
                                         .columns = ffn,
                                         .begin = expert * ffn * hidden,
                                         .row_stride = 1,
                                         .column_stride = hidden}));
    down_bias.parts.push_back(
        part(moe.down_bias, {.offset = local * hidden, .columns = hidden, .begin = expert * hidden}));
  });
  for (CheckpointTensor* tensor : {&gate_up, &gate_up_bias, &down, &down_bias}) {
    tensors_.push_back(std::move(*tensor));
  }
}

void Parameters::locate_shared_expert(std::int64_t layer) {
  const hf::ParameterNames names(config_.family);
  SharedExpertWeights& shared = layers_[static_cast<std::size_t>(layer)].shared;
  if (shared.gate_up == nullptr) {
    return;
  }
  const std::int64_t ffn = config_.shared_expert_intermediate_size;
  locate_rows(names.shared_gate(layer), shared.gate_up, 0, ffn);
  locate_rows(names.shared_up(layer), shared.gate_up, ffn, ffn);
  locate_whole(names.shared_down(layer), shared.down);
  if (shared.gate != nullptr) {
    locate_whole(hf::ParameterNames::shared_expert_gate(layer), shared.gate);
  }
}

void Parameters::initialize(std::uint64_t seed) {
  for (const CheckpointTensor& tensor : tensors_) {
    if (tensor.bias != nullptr) {
      std::fill(tensor.bias->begin(), tensor.bias->end(), 0.0F);
    }
    const bool zero = tensor.name.ends_with("bias");
    const bool drawn = !zero && (tensor.shape.rank() > 1 || tensor.name.ends_with("sinks"));
    const Philox random(seed, stream_of(tensor.name));
    for (const TensorPart& part : tensor.parts) {
      if (part.parameter == nullptr) {
        continue;
      }
      const TensorView destination =
          state_ == State::training ? part.parameter->master : part.parameter->weight;
      const auto write = [&](auto* data) {
        using Element = std::remove_pointer_t<decltype(data)>;
        kernels::parallel_for(part.elements(), 4096, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            const auto place = static_cast<std::uint64_t>(part.place(i / part.columns, i % part.columns));
            const auto value = drawn ? static_cast<float>(config_.initializer_range * random.normal(place))
                                     : (zero ? 0.0F : 1.0F);
            data[part.offset + i] = Element(value);
          }
        });
      };
      if (destination.dtype() == DType::f32) {
        write(destination.as<float>());
      } else {
        write(destination.as<bf16>());
      }
    }
  }
  refresh_weights();
}

void Parameters::refresh_weights() {
  for (const auto& parameter : parameters_) {
    if (state_ == State::training && parameter->weight.data() != parameter->master.data()) {
      kernels::convert(parameter->master, parameter->weight);
    }
  }
}

void Parameters::zero_gradients() {
  for (const Bucket& bucket : buckets_) {
    kernels::fill_zero(bucket.gradients);
  }
}

std::int64_t Parameters::total_parameters() const {
  std::int64_t total = 0;
  for (const CheckpointTensor& tensor : tensors_) {
    total += tensor.shape.elements();
  }
  return total;
}

std::int64_t Parameters::active_parameters() const {
  const std::int64_t per_expert = architecture::mlp_parameters(config_, config_.moe_intermediate_size);
  return total_parameters() - config_.count(architecture::LayerKind::moe) *
                                  (config_.experts - config_.experts_per_token) * per_expert;
}

}  // namespace expedite::model
