#include "expedite/model/parameters.h"

#include <algorithm>

#include "expedite/base/random.h"
#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/parallel.h"
#include "expedite/model/names.h"

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
  attention.qkv = add(layer, false, {config_.qkv_size(), hidden}, true, dtype_);
  attention.output = add(layer, false, {hidden, config_.query_size()}, true, dtype_);
  if (config_.qkv_bias) {
    attention.qkv_bias = add(layer, false, {config_.qkv_size()}, false, dtype_);
  }
  if (config_.output_bias) {
    attention.output_bias = add(layer, false, {hidden}, false, dtype_);
  }
  if (config_.qk_norm) {
    attention.query_norm = add(layer, false, {config_.head_dim}, false, dtype_);
    attention.key_norm = add(layer, false, {config_.head_dim}, false, dtype_);
  }
}

void Parameters::plan_mlp(int layer) {
  LayerWeights& weights = layers_[static_cast<std::size_t>(layer)];
  const std::int64_t hidden = config_.hidden_size;
  weights.mlp_norm = add(layer, false, {hidden}, false, dtype_);
  if (!config_.sparse[static_cast<std::size_t>(layer)]) {
    weights.dense.gate_up = add(layer, false, {2 * config_.intermediate_size, hidden}, true, dtype_);
    weights.dense.down = add(layer, false, {hidden, config_.intermediate_size}, true, dtype_);
    return;
  }
  const std::int64_t ffn = config_.moe_intermediate_size;
  weights.moe.router = add(layer, false, {config_.experts, hidden}, true, DType::f32);
  weights.moe.gate_up = add(layer, true, {shard_.local(), 2 * ffn, hidden}, true, dtype_);
  weights.moe.down = add(layer, true, {shard_.local(), hidden, ffn}, true, dtype_);
  if (config_.expert_bias) {
    weights.moe.selection_bias.assign(static_cast<std::size_t>(config_.experts), 0.0F);
  }
  if (const std::int64_t shared = config_.shared_expert_intermediate_size; shared > 0) {
    weights.shared.gate_up = add(layer, false, {2 * shared, hidden}, true, dtype_);
    weights.shared.down = add(layer, false, {hidden, shared}, true, dtype_);
    if (config_.shared_expert_gate) {
      weights.shared.gate = add(layer, false, {1, hidden}, true, dtype_);
    }
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

void Parameters::locate_whole(const std::string& name, Parameter* parameter) {
  tensors_.push_back({.name = name, .shape = parameter->shape, .parameter = parameter});
}

void Parameters::locate_rows(const std::string& name, Parameter* parameter, std::int64_t first,
                             std::int64_t count) {
  const std::int64_t columns = parameter->weight.columns();
  const Shape shape = parameter->shape.rank() == 1 ? Shape{count} : Shape{count, columns};
  tensors_.push_back({.name = name, .shape = shape, .parameter = parameter, .offset = first * columns});
}

void Parameters::locate_tensors() {
  locate_whole(ParameterNames::embedding(), embedding_);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i);
    LayerWeights& weights = layers_[i];
    locate_attention(layer);
    locate_whole(ParameterNames::post_attention_norm(layer), weights.mlp_norm);
    if (config_.sparse[i]) {
      locate_experts(layer);
      locate_shared_expert(layer);
    } else {
      const std::int64_t ffn = config_.intermediate_size;
      locate_rows(ParameterNames::dense_gate(layer), weights.dense.gate_up, 0, ffn);
      locate_rows(ParameterNames::dense_up(layer), weights.dense.gate_up, ffn, ffn);
      locate_whole(ParameterNames::dense_down(layer), weights.dense.down);
    }
  }
  locate_whole(ParameterNames::final_norm(), final_norm_);
  if (!config_.tie_word_embeddings) {
    locate_whole(ParameterNames::head(), head_);
  }
}

void Parameters::locate_attention(std::int64_t layer) {
  using Names = ParameterNames;
  AttentionWeights& attention = layers_[static_cast<std::size_t>(layer)].attention;
  const std::int64_t query = config_.query_size();
  const std::int64_t key = config_.kv_size();
  locate_whole(Names::input_norm(layer), attention.norm);
  locate_rows(Names::attention_weight(layer, "q"), attention.qkv, 0, query);
  locate_rows(Names::attention_weight(layer, "k"), attention.qkv, query, key);
  locate_rows(Names::attention_weight(layer, "v"), attention.qkv, query + key, key);
  locate_whole(Names::attention_weight(layer, "o"), attention.output);
  if (attention.qkv_bias != nullptr) {
    locate_rows(Names::attention_bias(layer, "q"), attention.qkv_bias, 0, query);
    locate_rows(Names::attention_bias(layer, "k"), attention.qkv_bias, query, key);
    locate_rows(Names::attention_bias(layer, "v"), attention.qkv_bias, query + key, key);
  }
  if (attention.output_bias != nullptr) {
    locate_whole(Names::attention_bias(layer, "o"), attention.output_bias);
  }
  if (attention.query_norm != nullptr) {
    locate_whole(Names::query_norm(layer), attention.query_norm);
    locate_whole(Names::key_norm(layer), attention.key_norm);
  }
}

void Parameters::locate_shared_expert(std::int64_t layer) {
  const ParameterNames names(config_.family);
  SharedExpertWeights& shared = layers_[static_cast<std::size_t>(layer)].shared;
  if (shared.gate_up == nullptr) {
    return;
  }
  const std::int64_t ffn = config_.shared_expert_intermediate_size;
  locate_rows(names.shared_gate(layer), shared.gate_up, 0, ffn);
  locate_rows(names.shared_up(layer), shared.gate_up, ffn, ffn);
  locate_whole(names.shared_down(layer), shared.down);
  if (shared.gate != nullptr) {
    locate_whole(ParameterNames::shared_expert_gate(layer), shared.gate);
  }
}

void Parameters::locate_experts(std::int64_t layer) {
  const ParameterNames names(config_.family);
  MoeWeights& moe = layers_[static_cast<std::size_t>(layer)].moe;
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t ffn = config_.moe_intermediate_size;
  locate_whole(names.router(layer), moe.router);
  if (!moe.selection_bias.empty()) {
    tensors_.push_back(
        {.name = names.selection_bias(layer), .shape = {config_.experts}, .bias = &moe.selection_bias});
  }
  for (int owner = 0; owner < shard_.ep_size(); ++owner) {
    const std::int64_t begin = shard_.first_expert[static_cast<std::size_t>(owner)];
    const std::int64_t end = shard_.first_expert[static_cast<std::size_t>(owner) + 1];
    const bool here = owner == shard_.ep_rank;
    for (std::int64_t expert = begin; expert < end; ++expert) {
      const std::int64_t gate_up = (expert - begin) * 2 * ffn * hidden;
      const auto locate = [&](const std::string& name, Shape shape, Parameter* parameter,
                              std::int64_t offset) {
        tensors_.push_back({.name = name,
                            .shape = shape,
                            .parameter = here ? parameter : nullptr,
                            .offset = here ? offset : 0,
                            .owner = owner,
                            .expert = true});
      };
      locate(names.expert_gate(layer, expert), {ffn, hidden}, moe.gate_up, gate_up);
      locate(names.expert_up(layer, expert), {ffn, hidden}, moe.gate_up, gate_up + ffn * hidden);
      locate(names.expert_down(layer, expert), {hidden, ffn}, moe.down, (expert - begin) * hidden * ffn);
    }
  }
}

void Parameters::initialize(std::uint64_t seed) {
  for (const CheckpointTensor& tensor : tensors_) {
    if (tensor.bias != nullptr) {
      std::fill(tensor.bias->begin(), tensor.bias->end(), 0.0F);
    }
    if (tensor.parameter == nullptr) {
      continue;
    }
    const bool matrix = tensor.shape.rank() == 2;
    const float constant = tensor.name.ends_with(".bias") ? 0.0F : 1.0F;
    const Philox random(seed, stream_of(tensor.name));
    const TensorView destination =
        state_ == State::training ? tensor.parameter->master : tensor.parameter->weight;
    const auto write = [&](auto* data) {
      using Element = std::remove_pointer_t<decltype(data)>;
      kernels::parallel_for(tensor.shape.elements(), 4096, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const auto value = matrix ? static_cast<float>(config_.initializer_range *
                                                         random.normal(static_cast<std::uint64_t>(i)))
                                    : constant;
          data[tensor.offset + i] = Element(value);
        }
      });
    };
    if (destination.dtype() == DType::f32) {
      write(destination.as<float>());
    } else {
      write(destination.as<bf16>());
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
  const std::int64_t per_expert = 3 * config_.hidden_size * config_.moe_intermediate_size;
  const auto sparse =
      static_cast<std::int64_t>(std::count(config_.sparse.begin(), config_.sparse.end(), true));
  return total_parameters() - sparse * (config_.experts - config_.experts_per_token) * per_expert;
}

}  // namespace expedite::model
