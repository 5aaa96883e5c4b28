// The parameters that one rank holds: weights, fp32 masters, gradients and optimizer state, and where each
// tensor of a Hugging Face checkpoint lies in them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "expedite/architecture/model_config.h"
#include "expedite/tensor/memory_pool.h"

namespace expedite::model {

/// Experts are split over the expert-parallel group: rank r holds [first_expert[r], first_expert[r + 1]).
struct ExpertShard {
  std::vector<std::int64_t> first_expert = {0, 0};  // [EP + 1]
  int ep_rank = 0;

  [[nodiscard]] std::int64_t begin() const { return first_expert[static_cast<std::size_t>(ep_rank)]; }
  [[nodiscard]] std::int64_t end() const { return first_expert[static_cast<std::size_t>(ep_rank) + 1]; }
  [[nodiscard]] std::int64_t local() const { return end() - begin(); }
  [[nodiscard]] int ep_size() const { return static_cast<int>(first_expert.size()) - 1; }
};

/// One stored tensor. Projections that are multiplied together lie together: query, key and value; gate and
/// up.
struct Parameter {
  Shape shape;
  bool decay = true;      // weight decay applies: matrices, not norms or biases
  TensorView weight;      // what kernels read: the run's type; f32 for the router
  TensorView master;      // f32; the same memory as `weight` when that is f32
  TensorView gradient;    // f32, summed over micro-batches
  TensorView exp_avg;     // f32
  TensorView exp_avg_sq;  // f32
};

/// Parameters whose gradients are reduced together, over all ranks or over the replicas of an expert shard.
struct Bucket {
  int layer = -1;  // -1: embedding; L: final norm and head
  bool expert = false;
  std::vector<Parameter*> parameters;
  TensorView gradients;  // f32 [n]: those of all parameters, contiguous
};

/// D head_dim, Dv value_dim; Rq q_lora_rank, Rkv kv_lora_rank, Dn qk_nope_head_dim, Dr qk_rope_head_dim.
struct AttentionWeights {
  Parameter* norm = nullptr;  // [H]
  // Grouped-query attention.
  Parameter* qkv = nullptr;         // [(heads + 2 kv_heads) D, H]
  Parameter* qkv_bias = nullptr;    // [(heads + 2 kv_heads) D] or null
  Parameter* query_norm = nullptr;  // [D], [heads D] or null; latent: [Rq], null where Rq is 0
  Parameter* key_norm = nullptr;    // [D], [kv_heads D] or null; latent: [Rkv]
  Parameter* sinks = nullptr;       // [heads] or null
  // Latent attention.
  Parameter* compress = nullptr;       // [Rq + Rkv + Dr, H]; where Rq is 0, [heads D + Rkv + Dr, H]
  Parameter* compress_bias = nullptr;  // [Rq + Rkv + Dr] or null
  Parameter* query_expand = nullptr;   // [heads D, Rq], null where Rq is 0
  Parameter* expand = nullptr;         // [heads (Dn + Dv), Rkv]
  // Both.
  Parameter* output = nullptr;       // [H, heads Dv]
  Parameter* output_bias = nullptr;  // [H] or null
};

struct DenseWeights {
  Parameter* gate_up = nullptr;       // [2 FFN, H]
  Parameter* down = nullptr;          // [H, FFN]
  Parameter* gate_up_bias = nullptr;  // [2 FFN] or null
  Parameter* down_bias = nullptr;     // [H] or null
};

struct MoeWeights {
  Parameter* router = nullptr;        // [E, H], f32
  Parameter* router_bias = nullptr;   // [E], f32, or null
  Parameter* gate_up = nullptr;       // [local E, 2 F, H]
  Parameter* down = nullptr;          // [local E, H, F]
  Parameter* gate_up_bias = nullptr;  // [local E, 2 F] or null
  Parameter* down_bias = nullptr;     // [local E, H] or null
  std::vector<float> selection_bias;  // [E] or empty; moved by load, the same on every rank
};

/// The shared expert: a dense one that every token passes through. Every rank holds it.
struct SharedExpertWeights {
  Parameter* gate_up = nullptr;  // [2 Fs, H]; null: the layer has no shared expert
  Parameter* down = nullptr;     // [H, Fs]
  Parameter* gate = nullptr;     // [1, H] or null: its sigmoid weighs the output
};

struct LayerWeights {
  AttentionWeights attention;
  Parameter* mlp_norm = nullptr;  // [H]
  DenseWeights dense;             // dense layers
  MoeWeights moe;                 // sparse layers
  SharedExpertWeights shared;     // sparse layers
};

/// A part of a Hugging Face tensor that lies in one piece in a parameter: a matrix [rows, columns].
struct TensorPart {
  Parameter* parameter = nullptr;  // null: another rank holds it
  std::int64_t offset = 0;         // of its first element in the parameter
  std::int64_t rows = 1;
  std::int64_t columns = 0;
  // Its element (r, c) is element begin + r * row_stride + c * column_stride of the tensor.
  std::int64_t begin = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;
  int owner = 0;  // the expert-parallel rank that holds it, if it is an expert's

  [[nodiscard]] std::int64_t elements() const { return rows * columns; }
  [[nodiscard]] std::int64_t place(std::int64_t row, std::int64_t column) const {
    return begin + row * row_stride + column * column_stride;
  }
  /// It lies in the tensor as in the parameter.
  [[nodiscard]] bool contiguous() const { return column_stride == 1 && (rows == 1 || row_stride == columns); }
};

/// Where a Hugging Face tensor lies: most in one part; those that hold all experts of a layer in one for
/// each.
struct CheckpointTensor {
  std::string name;
  Shape shape;
  std::vector<TensorPart> parts;       // together the whole tensor
  bool expert = false;                 // every rank holds what is not
  std::vector<float>* bias = nullptr;  // a selection bias instead of a parameter
};

/// What there is besides shapes; each includes those before it.
enum class State : std::uint8_t { shapes, weights, gradients, training };

class Parameters {
 public:
  /// Allocates; all is zero. With `shapes` nothing is: tensors have no memory. `training` is what the
  /// optimizer needs too: masters and moments. dtype: f32 or bf16.
  Parameters(const ModelConfig& config, DType dtype, ExpertShard shard, State state, MemoryPool& pool);
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  /// Normal(0, initializer_range) for matrices, one for norms, zero for biases; each element depends only on
  /// the seed, its tensor's name and its index there, so that every layout starts from the same model.
  void initialize(std::uint64_t seed);
  /// Rounds the masters into the weights.
  void refresh_weights();
  void zero_gradients();

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const ExpertShard& shard() const { return shard_; }
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] LayerWeights& layer(int index) { return layers_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] Parameter& embedding() { return *embedding_; }
  [[nodiscard]] Parameter& final_norm() { return *final_norm_; }
  /// The embedding itself when the two are tied.
  [[nodiscard]] Parameter& head() { return *head_; }
  [[nodiscard]] std::vector<Bucket>& buckets() { return buckets_; }
  /// The bucket of a layer; null when the rank holds nothing of it.
  [[nodiscard]] Bucket* bucket(int layer, bool expert);
  /// Every tensor of the whole model in checkpoint order, also those that other ranks hold.
  [[nodiscard]] std::vector<CheckpointTensor>& tensors() { return tensors_; }

  /// Parameters of the whole model, and those that one token uses.
  [[nodiscard]] std::int64_t total_parameters() const;
  [[nodiscard]] std::int64_t active_parameters() const;

 private:
  void plan_attention(int layer);
  void plan_latent_attention(int layer);
  void plan_mlp(int layer);
  void plan_experts(int layer);
  Parameter* add(int layer, bool expert, Shape shape, bool decay, DType dtype);
  void allocate(MemoryPool& pool);
  void locate_tensors();
  void locate_whole(const std::string& name, Parameter* parameter);
  void locate_rows(const std::string& name, Parameter* parameter, std::int64_t first, std::int64_t count);
  void locate_attention(std::int64_t layer);
  void locate_latent_attention(std::int64_t layer);
  void locate_dense(std::int64_t layer);
  void locate_router(std::int64_t layer);
  void locate_experts(std::int64_t layer);
  void locate_fused_experts(std::int64_t layer);
  void locate_shared_expert(std::int64_t layer);
  template <typename Visit>
  void for_each_expert(const Visit& visit) const;

  ModelConfig config_;
  DType dtype_;
  ExpertShard shard_;
  State state_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<LayerWeights> layers_;
  Parameter* embedding_ = nullptr;
  Parameter* final_norm_ = nullptr;
  Parameter* head_ = nullptr;
  std::vector<Bucket> buckets_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<Buffer> storage_;
};

}  // namespace expedite::model
