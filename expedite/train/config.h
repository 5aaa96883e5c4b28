// The configuration of a training run: read from YAML, changed by `--set key=value`, checked against one
// schema.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/kernels/bf16_products.h"
#include "expedite/schedule/builders.h"
#include "expedite/schedule/ep_plan.h"
#include "expedite/tensor/dtype.h"

namespace expedite::train {

/// How tokens are moved between expert-parallel ranks: schedule::Dispatcher, or what measured links favour.
enum class Dispatcher : std::uint8_t {
  alltoall,
  zero_redundancy,
  hierarchical,
  hierarchical_dedup,
  automatic,
};

/// How many chunks an expert layer's tokens are cut into: a number (0: as the chunks' size says), or as many
/// as measured rates favour.
struct ChunkCount {
  std::int64_t chunks = 0;
  bool automatic = false;

  bool operator==(const ChunkCount&) const = default;
};

/// What keeps the experts evenly loaded: an auxiliary loss over the batch or per sequence, nothing, or a bias
/// on the router's scores that follows the load and needs no loss.
enum class LoadBalancing : std::uint8_t { aux_loss, seq_aux_loss, none, bias };

/// Field by field the keys of the YAML file; schema() says what each means. The initial values are the
/// defaults.
struct TrainConfig {
  std::string name = "run";
  std::int64_t seed = 0;
  std::string output_dir = "runs";
  DType dtype = DType::bf16;

  struct Model {
    std::string path;                                  // Hugging Face folder or config.json; empty: `config`
    bool load_weights = false;                         // start from the safetensors in `path`
    nlohmann::json config = nlohmann::json::object();  // the fields of a Hugging Face config.json
    bool operator==(const Model&) const = default;
  } model;

  struct EpPlan {
    Dispatcher dispatcher = Dispatcher::alltoall;
    ChunkCount moe_num_chunks;
    std::int64_t moe_chunk_size = 0;
    schedule::ChunkPipeline moe_chunk_pipeline = schedule::ChunkPipeline::continuous;
    std::int64_t moe_chunk_window = 2;
    schedule::MoeRecompute chunk_moe_recompute = schedule::MoeRecompute::none;
    bool operator==(const EpPlan&) const = default;
  };
  struct Parallel {
    std::int64_t ranks = 0;                 // to start; 0: one
    std::int64_t expert_parallel_size = 0;  // 0: all ranks
    const schedule::Builder* schedule = &schedule::step_builders().front();
    EpPlan ep_plan;
    bool operator==(const Parallel&) const = default;
  } parallel;

  struct Moe {
    LoadBalancing router_load_balancing_type = LoadBalancing::seq_aux_loss;
    double aux_loss_coeff = 0.001;
    double z_loss_coeff = 0.0;
    double router_bias_update_rate = 0.001;
    bool operator==(const Moe&) const = default;
  } moe;

  struct Data {
    std::vector<std::string> path;        // files and folders
    std::vector<std::string> extensions;  // empty: every text file
    std::string tokenizer;                // "bytes", or a path; empty: that of model.path, else bytes
    double max_lost_fraction = 0.05;      // of the bytes: what the tokenizer may lose
    double validation_fraction = 0.05;    // of the bytes
    std::int64_t seq_length = 512;
    bool operator==(const Data&) const = default;
  } data;

  struct Train {
    std::int64_t steps = 1000;
    std::int64_t global_batch_size = 16;  // sequences per step, over all ranks
    std::int64_t micro_batch_size = 1;    // sequences per rank and micro-batch
    std::int64_t log_interval = 10;       // steps
    std::int64_t eval_interval = 100;     // steps; 0: only at the end
    std::int64_t eval_sequences = 0;      // 0: the whole validation text
    double max_minutes = 0.0;             // 0: no limit
    bool operator==(const Train&) const = default;
  } train;

  struct Optimizer {
    double lr = 1e-3;
    double min_lr = 1e-4;
    std::int64_t warmup_steps = 20;
    double weight_decay = 0.1;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double clip_grad = 1.0;  // 0: no clipping
    bool operator==(const Optimizer&) const = default;
  } optimizer;

  struct Checkpoint {
    std::int64_t save_interval = 0;  // steps; 0: only at the end
    std::int64_t keep = 2;           // 0: all
    bool operator==(const Checkpoint&) const = default;
  } checkpoint;

  struct Trace {
    std::int64_t first_step = 10;
    std::int64_t steps = 2;  // 0: no trace
    bool operator==(const Trace&) const = default;
  } trace;

  struct Runtime {
    double collective_timeout_s = 300.0;  // 0: none
    double stop_timeout_s = 120.0;        // 0: none
    std::int64_t threads_per_rank = 0;    // 0: from the cores the rank owns
    kernels::Bf16Products bf16_products = kernels::Bf16Products::automatic;
    bool operator==(const Runtime&) const = default;
  } runtime;

  bool operator==(const TrainConfig&) const = default;

  /// output_dir/name: where config.yaml, metrics.jsonl, trace.json and the checkpoints go.
  [[nodiscard]] std::filesystem::path run_dir() const { return std::filesystem::path(output_dir) / name; }
};

/// Reads `file`, then applies each override, "key.path=value" with the value written in YAML, in order.
/// A file that is not there may be one that was installed with the program (with_installed). Paths in the
/// configuration are relative to the working directory. Throws Error naming file:line (or the
/// override), the key, the value and what is legal: for bad YAML, unknown keys (with the nearest known one),
/// duplicate keys, wrong types, values out of range, and values that contradict each other.
[[nodiscard]] TrainConfig read_config(const std::filesystem::path& file,
                                      std::span<const std::string> overrides = {});

/// As read_config, from text; `where` stands for the file's name in messages.
[[nodiscard]] TrainConfig parse_config(std::string_view yaml, const std::string& where,
                                       std::span<const std::string> overrides = {});

/// The whole configuration as YAML, defaults included; parse_config() of it gives an equal TrainConfig.
[[nodiscard]] std::string to_yaml(const TrainConfig& config);

/// The same configuration with every path absolute, so that it means the same in any working directory.
[[nodiscard]] TrainConfig with_absolute_paths(TrainConfig config);

/// A Markdown table of every key: type, default, what is legal, meaning.
[[nodiscard]] std::string config_reference();

}  // namespace expedite::train
