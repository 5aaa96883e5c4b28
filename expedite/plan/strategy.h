// How a model's training is spread over devices: every knob that a plan turns.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "expedite/architecture/model_config.h"
#include "expedite/schedule/dispatcher.h"

namespace expedite::plan {

enum class Recompute : std::uint8_t {
  none,
  selective,  // the core of attention (Korthikanti et al., 2022, arXiv:2205.05198)
  moe_act,    // the activation of experts, as Megatron's module of that name and EpPlan::recompute
  half,       // every other layer, or every other product
  full,       // every layer from its input
};
inline constexpr std::array<std::string_view, 5> kRecomputeNames = {"none", "selective", "moe_act", "half",
                                                                    "full"};

enum class Pipeline : std::uint8_t {
  one_f_one_b,     // Narayanan et al., 2021, arXiv:2104.04473; interleaved with vpp > 1
  zero_bubble_h1,  // Qi et al., 2024, arXiv:2401.10241
  zero_bubble_h2,
  dualpipe,  // DeepSeek-AI, 2024, arXiv:2412.19437: two copies of the weights
  adaptive,  // forward and backward of two micro-batches overlap on virtual stages
};
inline constexpr std::array<std::string_view, 5> kPipelineNames = {"1f1b", "zb-h1", "zb-h2", "dualpipe",
                                                                   "adaptive"};

struct Strategy {
  std::int32_t tp = 1;
  std::int32_t cp = 1;
  std::int32_t pp = 1;
  std::int32_t vpp = 1;  // virtual stages per stage
  std::int32_t ep = 1;   // inside tp * cp * dp
  std::int32_t etp = 1;  // tensor parallelism of experts
  std::int32_t dp = 1;
  std::int32_t zero = 1;  // 0: all replicated, 1: optimizer sharded over dp, 2: gradients too, 3: weights too
  std::int32_t micro_batch = 1;
  std::int32_t chunks = 1;  // of an MoE layer's tokens
  Recompute recompute = Recompute::none;
  Pipeline pipeline = Pipeline::one_f_one_b;
  schedule::Dispatcher dispatcher = schedule::Dispatcher::alltoall;
  bool sequence_parallel = true;  // where tp > 1

  [[nodiscard]] std::int64_t devices() const { return std::int64_t{1} * tp * cp * pp * dp; }
  bool operator==(const Strategy&) const = default;
};

/// Whether a forward and a backward of two micro-batches run side by side.
[[nodiscard]] constexpr bool pairs_micro_batches(const Strategy& strategy) {
  return strategy.pipeline == Pipeline::adaptive || strategy.pipeline == Pipeline::dualpipe;
}

struct Workload {
  std::int64_t seq = 4096;
  std::int64_t global_batch = 0;  // sequences
};

/// Why a strategy cannot be. Counted by the search.
enum class Illegal : std::uint8_t {
  devices,
  heads,
  layers,
  virtual_stages,
  experts,
  expert_group,
  batch,
  sequence,
  micro_batches,
  pipeline,
  chunks,
  dispatcher,
  program,  // that the strategy is for cannot do it: SearchSpace::accepted
};
inline constexpr std::array<std::string_view, 13> kIllegalNames = {
    "devices",  "heads",         "layers",   "virtual stages", "experts",    "expert group", "batch",
    "sequence", "micro-batches", "pipeline", "chunks",         "dispatcher", "program"};

/// Nothing when it can be.
[[nodiscard]] std::optional<Illegal> illegal(const Strategy& strategy, const ModelConfig& model,
                                             const Workload& workload, std::int64_t devices);
/// What is wrong and what would be legal.
[[nodiscard]] std::string explain(Illegal reason, const Strategy& strategy, const ModelConfig& model,
                                  const Workload& workload, std::int64_t devices);

/// "tp=8,pp=16,vpp=2,ep=32,...": dp follows from devices where it is not given. Throws Error naming the knob
/// and what is legal.
[[nodiscard]] Strategy parse_strategy(std::string_view text, std::int64_t devices);
[[nodiscard]] std::string to_string(const Strategy& strategy);

}  // namespace expedite::plan
