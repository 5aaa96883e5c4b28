// Models and batches small enough for the fp64 reference, drawn at random from a seed: the same on every
// rank.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <vector>

#include "expedite/architecture/model_config.h"
#include "expedite/model/micro_batch.h"
#include "expedite/model/step.h"
#include "tests/reference/model.h"

namespace expedite::model::tests {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  /// Both ends included.
  [[nodiscard]] std::int64_t between(std::int64_t lowest, std::int64_t highest) {
    return lowest + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(highest - lowest + 1));
  }
  [[nodiscard]] bool flip() { return between(0, 1) == 1; }

 private:
  std::mt19937_64 random_;
};

/// The seed of a test's case: fixed, and another for every number of ranks. gtest's --gtest_random_seed
/// chooses others, and with --gtest_shuffle every --gtest_repeat has new ones.
[[nodiscard]] std::uint64_t seed_of(int test_case, int ranks);

/// Two layers with five experts, top 2, of the qwen3_moe family; `changes` replace fields.
[[nodiscard]] ModelConfig tiny_config(const nlohmann::json& changes = nlohmann::json::object());

/// Sizes and options at random: both families, everything that a configuration can switch.
[[nodiscard]] ModelConfig random_config(Dice& dice);

using Sequences = std::vector<std::vector<int>>;

/// The sequences of one step, by micro-batch and rank; every token but the last of a sequence has a target.
class TinyBatch {
 public:
  /// Uneven at random: ranks without sequences, sequences of no and of one token. At least two tokens in all.
  TinyBatch(Dice& dice, const ModelConfig& config, int micro_batches, int ranks);
  /// Every rank's share of `sequences`, in one micro-batch.
  TinyBatch(const Sequences& sequences, int ranks);

  /// Draws tokens again until every beginning of every sequence is accepted, which no later token changes;
  /// false when one is not after many tries.
  [[nodiscard]] bool redraw(Dice& dice, const ModelConfig& config,
                            const std::function<bool(const std::vector<int>& beginning)>& accepted);

  [[nodiscard]] int micro_batches() const { return static_cast<int>(sequences_.size()); }
  [[nodiscard]] const Sequences& of(int micro_batch, int rank) const;
  /// Those of all ranks, one rank behind the other.
  [[nodiscard]] Sequences all(int micro_batch) const;
  [[nodiscard]] std::int64_t tokens(int micro_batch) const;
  [[nodiscard]] std::int64_t tokens() const;
  [[nodiscard]] std::int64_t targets(int micro_batch) const;
  [[nodiscard]] std::int64_t targets() const;
  /// Of the rank and micro-batch that has most.
  [[nodiscard]] std::int64_t most_tokens() const;
  /// How many tokens of a micro-batch lie on the ranks before this one.
  [[nodiscard]] std::int64_t tokens_before(int micro_batch, int rank) const;
  [[nodiscard]] std::vector<MicroBatch> on_rank(int rank) const;
  /// `micro_batches` is what on_rank gave, and must outlive the input.
  [[nodiscard]] StepRunner::Input input(const std::vector<MicroBatch>& micro_batches) const;

 private:
  std::vector<std::vector<Sequences>> sequences_;  // [micro-batch][rank]
};

/// What the reference makes of a step: the sum over micro-batches, each weighted by its targets or tokens.
struct Expected {
  double loss = 0.0;
  double aux_loss = 0.0;
  double z_loss = 0.0;
  reference::Gradients gradients;                       // of the losses together, as a step adds them
  std::vector<std::vector<std::int64_t>> expert_loads;  // per sparse layer
  std::vector<reference::Result> micro_batches;
};
[[nodiscard]] Expected expected_step(const ModelConfig& config, const reference::Parameters& weights,
                                     const TinyBatch& batch, const BalanceOptions& balance);

[[nodiscard]] BalanceOptions random_balance(Dice& dice);

/// Weights and a batch whose routing margin is at least `margin`, so that rounding cannot send a token to
/// another expert: the least distance, for any token, between the last expert or group of experts that it
/// chose and the first that it did not, relative to a typical router logit.
struct Problem {
  ModelConfig config;
  reference::Parameters weights;
  TinyBatch batch;
};
/// With `bf16` the weights are exact in bf16. `selection_bias`: of the experts of every sparse layer, in
/// place of one at random, which skews the routing; for a model that has it.
[[nodiscard]] Problem draw_problem(Dice& dice, const ModelConfig& config, int micro_batches, int ranks,
                                   double margin, bool bf16, std::span<const float> selection_bias = {});

}  // namespace expedite::model::tests
