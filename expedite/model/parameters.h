// The parameters that one rank holds: weights, fp32 masters, gradients and optimizer state, and where each
// tensor of a Hugging Face checkpoint lies in them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "expedite/model/config.h"
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

struct AttentionWeights {
  Parameter* norm = nullptr;         // [H]
  Parameter* qkv = nullptr;          // [(heads + 2 kv_heads) D, H]
  Parameter* qkv_bias = nullptr;     // [(heads + 2 kv_heads) D] or null
  Parameter* query_norm = nullptr;   // [D] or null
  Parameter* key_norm = nullptr;     // [D] or null
  Parameter* output = nullptr;       // [H, heads D]
  Parameter* output_bias = nullptr;  // [H] or null
};

struct DenseWeights {
  Parameter* gate_up = nullptr;  // [2 FFN, H]
  Parameter* down = nullptr;     // [H, FFN]
};

struct MoeWeights {
  Parameter* router = nullptr;        // [E, H], f32
  Parameter* gate_up = nullptr;       // [local E, 2 F, H]
  Parameter* down = nullptr;          // [local E, H, F]
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

/// Where a Hugging Face tensor lies: a contiguous run of elements of one parameter.
struct CheckpointTensor {
  std::string name;
  Shape shape;
  Parameter* parameter = nullptr;      // null: another rank holds it
  std::int64_t offset = 0;             // elements
  int owner = 0;                       // the expert-parallel rank that holds it, if it is an expert's
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
  void plan_mlp(int layer);
  Parameter* add(int layer, bool expert, Shape shape, bool decay, DType dtype);
  void allocate(MemoryPool& pool);
  void locate_tensors();
  void locate_whole(const std::string& name, Parameter* parameter);
  void locate_rows(const std::string& name, Parameter* parameter, std::int64_t first, std::int64_t count);
  void locate_attention(std::int64_t layer);
  void locate_experts(std::int64_t layer);
  void locate_shared_expert(std::int64_t layer);

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
