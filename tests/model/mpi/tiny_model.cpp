#include "tests/model/mpi/tiny_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "expedite/base/error.h"
#include "expedite/hf/names.h"
#include "expedite/kernels/cross_entropy.h"
#include "expedite/tensor/dtype.h"
#include "tests/reference/layer.h"

namespace expedite::model::tests {
namespace {

using nlohmann::json;

constexpr int kTriesPerProblem = 100;
constexpr int kTriesPerToken = 100;

json random_rope_scaling(Dice& dice) {
  switch (dice.between(0, 4)) {
    case 1:
      return {{"rope_type", "linear"}, {"factor", 2.5}};
    case 2:
      return {{"rope_type", "dynamic"}, {"factor", 2.0}};
    case 3:
      return {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 8}};
    case 4:
      return {{"rope_type", "llama3"},
              {"factor", 8.0},
              {"low_freq_factor", 1.0},
              {"high_freq_factor", 4.0},
              {"original_max_position_embeddings", 16}};
    default:
      return nullptr;
  }
}

void draw_qwen3_moe(Dice& dice, json& config) {
  config["attention_bias"] = dice.flip();
  config["norm_topk_prob"] = dice.flip();
  config["moe_intermediate_size"] = dice.between(3, 24);
  if (dice.flip()) {
    config["use_sliding_window"] = true;
    config["sliding_window"] = dice.between(1, 6);
  }
  if (dice.flip()) {
    config["mlp_only_layers"] = {dice.between(0, 2)};
  }
}

void draw_mixtral(Dice& dice, json& config) {
  config["num_local_experts"] = config["num_experts"];
  config["sliding_window"] = dice.flip() ? json(dice.between(1, 6)) : json(nullptr);
}

void draw_olmoe(Dice& dice, json& config) {
  config["attention_bias"] = dice.flip();
  config["norm_topk_prob"] = dice.flip();
}

void draw_gpt_oss(Dice& dice, json& config) {
  config["num_local_experts"] = config["num_experts"];
  config["attention_bias"] = dice.flip();
  config["sliding_window"] = dice.flip() ? json(dice.between(1, 6)) : json(nullptr);
}

/// Six experts in three groups, of which two are left to choose from.
void draw_groups(Dice& dice, json& config) {
  config["n_routed_experts"] = 6;
  config["n_group"] = 3;
  config["topk_group"] = 2;
  config["num_experts_per_tok"] = dice.between(1, 4);
}

void draw_deepseek(Dice& dice, json& config) {
  const bool second = config["model_type"] == "deepseek_v2";
  config["num_key_value_heads"] = config["num_attention_heads"];
  config["q_lora_rank"] = dice.flip() ? json(dice.between(2, 9)) : json(nullptr);
  config["kv_lora_rank"] = dice.between(2, 9);
  config["qk_nope_head_dim"] = dice.between(1, 9);
  config["qk_rope_head_dim"] = 2 * dice.between(2, 4);
  config["v_head_dim"] = dice.between(1, 12);
  config["attention_bias"] = dice.flip();
  config["n_routed_experts"] = config["num_experts"];
  config["n_shared_experts"] = dice.between(0, 2);
  config["moe_intermediate_size"] = dice.between(3, 24);
  config["first_k_dense_replace"] = dice.between(0, 1);
  config["norm_topk_prob"] = !second && dice.flip();
  config["n_group"] = config["topk_group"] = 1;
  if (second) {
    config["topk_method"] = dice.flip() ? "greedy" : "group_limited_greedy";
  } else {
    config["rope_interleave"] = dice.flip();
  }
  if (dice.flip()) {
    draw_groups(dice, config);
  }
}

double log_sum_exp(std::span<const double> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const double logit : logits) {
    sum += std::exp(logit - largest);
  }
  return largest + std::log(sum);
}

/// What experts are chosen by, in the measure of logits. Without bias and groups those themselves: scores
/// only rise with them.
reference::Preferences preferences(const ModelConfig& config, std::span<const double> logits,
                                   std::span<const double> bias) {
  if (bias.empty() && config.expert_groups == 1) {
    return {{logits.begin(), logits.end()}, std::numeric_limits<double>::infinity()};
  }
  std::vector<double> scores;
  for (const double logit : logits) {
    scores.push_back(config.scoring == architecture::Scoring::sigmoid
                         ? 1.0 / (1.0 + std::exp(-logit))
                         : std::exp(logit - log_sum_exp(logits)));
  }
  // Logits that move by d move a sigmoid by d / 4 and a softmax, with all of them moving, by d / 2; a group's
  // score by twice that.
  const double steepness = config.scoring == architecture::Scoring::sigmoid ? 0.25 : 0.5;
  reference::Preferences result = reference::preferences(scores, bias, reference::router_shape(config));
  for (double& value : result.values) {
    value /= steepness;
  }
  result.group_margin /= 2.0 * steepness;
  return result;
}

void add_scaled(reference::Gradients& sum, double factor, const reference::Gradients& gradients) {
  for (const auto& [name, values] : gradients) {
    std::vector<double>& total = sum.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      total[i] += factor * values[i];
    }
  }
}

}  // namespace

std::uint64_t seed_of(int test_case, int ranks) {
  // Without the option gtest takes the time, which differs between ranks.
  const int chosen = GTEST_FLAG_GET(random_seed) != 0 ? testing::UnitTest::GetInstance()->random_seed() : 0;
  return 1'000'000 * static_cast<std::uint64_t>(chosen) + static_cast<std::uint64_t>(100 * test_case + ranks);
}

ModelConfig tiny_config(const json& changes) {
  json config = {{"model_type", "qwen3_moe"},
                 {"vocab_size", 31},
                 {"hidden_size", 24},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 2},
                 {"num_key_value_heads", 1},
                 {"head_dim", 8},
                 {"num_experts", 5},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 12},
                 {"intermediate_size", 20},
                 {"norm_topk_prob", true},
                 {"max_position_embeddings", 64}};
  config.update(changes);
  return architecture::parse_model_config(config, "test");
}

ModelConfig random_config(Dice& dice) {
  struct Draw {
    const char* model_type;
    void (*draw)(Dice&, json&);
  };
  constexpr std::array kFamilies = {Draw{"mixtral", draw_mixtral},      Draw{"qwen3_moe", draw_qwen3_moe},
                                    Draw{"qwen3_moe", draw_qwen3_moe},  Draw{"olmoe", draw_olmoe},
                                    Draw{"gpt_oss", draw_gpt_oss},      Draw{"deepseek_v2", draw_deepseek},
                                    Draw{"deepseek_v3", draw_deepseek}, Draw{"deepseek_v3", draw_deepseek}};
  const Draw& family = kFamilies[static_cast<std::size_t>(dice.between(0, std::ssize(kFamilies) - 1))];
  const std::int64_t kv_heads = dice.between(1, 2);
  const std::int64_t experts = dice.between(1, 7);
  json config = {{"vocab_size", dice.between(11, 40)},
                 {"hidden_size", dice.between(16, 48)},
                 {"num_hidden_layers", dice.between(1, 3)},
                 {"num_attention_heads", kv_heads * dice.between(1, 3)},
                 {"num_key_value_heads", kv_heads},
                 {"head_dim", 2 * dice.between(2, 9)},
                 {"num_experts_per_tok", dice.between(1, experts)},
                 {"intermediate_size", dice.between(5, 30)},
                 {"tie_word_embeddings", dice.flip()},
                 {"rope_theta", dice.flip() ? 1e4 : 50.0},
                 {"rope_scaling", random_rope_scaling(dice)},
                 {"max_position_embeddings", 32}};
  config["model_type"] = family.model_type;
  config["num_experts"] = experts;
  family.draw(dice, config);
  const bool own_router = family.draw == draw_mixtral || family.draw == draw_qwen3_moe;
  if (own_router && dice.flip()) {
    config["scoring_func"] = "sigmoid";
    config["moe_router_enable_expert_bias"] = true;
    config["routed_scaling_factor"] = 1.5;
  }
  return architecture::parse_model_config(config, "test");
}

TinyBatch::TinyBatch(Dice& dice, const ModelConfig& config, int micro_batches, int ranks) {
  constexpr std::int64_t kMostTokens = 40;
  sequences_.assign(static_cast<std::size_t>(micro_batches),
                    std::vector<Sequences>(static_cast<std::size_t>(ranks)));
  std::int64_t left = kMostTokens;
  for (auto& micro_batch : sequences_) {
    for (Sequences& sequences : micro_batch) {
      for (std::int64_t count = dice.between(0, 3); count > 0 && left > 0; --count) {
        std::vector<int>& sequence = sequences.emplace_back();
        const std::int64_t longest = dice.between(0, 3) == 0 ? 1 : 9;
        for (std::int64_t length = dice.between(0, std::min(longest, left)); length > 0; --length, --left) {
          sequence.push_back(static_cast<int>(dice.between(0, config.vocab_size - 1)));
        }
      }
    }
  }
  if (targets() == 0) {
    sequences_.back().back().push_back({1, 2});
  }
}

bool TinyBatch::redraw(Dice& dice, const ModelConfig& config,
                       const std::function<bool(const std::vector<int>& beginning)>& accepted) {
  for (auto& micro_batch : sequences_) {
    for (Sequences& sequences : micro_batch) {
      for (std::vector<int>& sequence : sequences) {
        std::vector<int> beginning;
        for (int& token : sequence) {
          beginning.push_back(token);
          for (int i = 0; !accepted(beginning); ++i) {
            if (i == kTriesPerToken) {
              return false;
            }
            beginning.back() = static_cast<int>(dice.between(0, config.vocab_size - 1));
          }
          token = beginning.back();
        }
      }
    }
  }
  return true;
}

TinyBatch::TinyBatch(const Sequences& sequences, int ranks) {
  std::vector<Sequences>& shares = sequences_.emplace_back(static_cast<std::size_t>(ranks));
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    shares[s * static_cast<std::size_t>(ranks) / sequences.size()].push_back(sequences[s]);
  }
}

const Sequences& TinyBatch::of(int micro_batch, int rank) const {
  return sequences_[static_cast<std::size_t>(micro_batch)][static_cast<std::size_t>(rank)];
}

Sequences TinyBatch::all(int micro_batch) const {
  Sequences result;
  for (const Sequences& sequences : sequences_[static_cast<std::size_t>(micro_batch)]) {
    result.insert(result.end(), sequences.begin(), sequences.end());
  }
  return result;
}

std::int64_t TinyBatch::tokens(int micro_batch) const {
  std::int64_t count = 0;
  for (const std::vector<int>& sequence : all(micro_batch)) {
    count += std::ssize(sequence);
  }
  return count;
}

std::int64_t TinyBatch::tokens() const {
  std::int64_t count = 0;
  for (int micro_batch = 0; micro_batch < micro_batches(); ++micro_batch) {
    count += tokens(micro_batch);
  }
  return count;
}

std::int64_t TinyBatch::targets(int micro_batch) const {
  std::int64_t count = 0;
  for (const std::vector<int>& sequence : all(micro_batch)) {
    count += std::max<std::int64_t>(std::ssize(sequence) - 1, 0);
  }
  return count;
}

std::int64_t TinyBatch::targets() const {
  std::int64_t count = 0;
  for (int micro_batch = 0; micro_batch < micro_batches(); ++micro_batch) {
    count += targets(micro_batch);
  }
  return count;
}

std::int64_t TinyBatch::most_tokens() const {
  std::int64_t most = 0;
  for (int micro_batch = 0; micro_batch < micro_batches(); ++micro_batch) {
    for (int rank = 0; rank < static_cast<int>(sequences_.front().size()); ++rank) {
      most = std::max(most, tokens_before(micro_batch, rank + 1) - tokens_before(micro_batch, rank));
    }
  }
  return most;
}

std::int64_t TinyBatch::tokens_before(int micro_batch, int rank) const {
  std::int64_t count = 0;
  for (int before = 0; before < rank; ++before) {
    for (const std::vector<int>& sequence : of(micro_batch, before)) {
      count += std::ssize(sequence);
    }
  }
  return count;
}

std::vector<MicroBatch> TinyBatch::on_rank(int rank) const {
  std::vector<MicroBatch> result(sequences_.size());
  for (int micro_batch = 0; micro_batch < micro_batches(); ++micro_batch) {
    for (const std::vector<int>& sequence : of(micro_batch, rank)) {
      std::vector<std::int32_t> targets(sequence.begin() + (sequence.empty() ? 0 : 1), sequence.end());
      targets.resize(sequence.size(), kernels::kIgnoredTarget);
      result[static_cast<std::size_t>(micro_batch)].append(sequence, targets);
    }
  }
  return result;
}

StepRunner::Input TinyBatch::input(const std::vector<MicroBatch>& micro_batches) const {
  StepRunner::Input input{micro_batches, tokens(), targets(), {}};
  for (int micro_batch = 0; micro_batch < this->micro_batches(); ++micro_batch) {
    input.micro_batch_tokens.push_back(tokens(micro_batch));
  }
  return input;
}

Expected expected_step(const ModelConfig& config, const reference::Parameters& weights,
                       const TinyBatch& batch, const BalanceOptions& balance) {
  Expected step;
  step.gradients = reference::zero_gradients(config);
  for (const bool sparse : config.sparse) {
    if (sparse) {
      step.expert_loads.emplace_back(static_cast<std::size_t>(config.experts), 0);
    }
  }
  for (int i = 0; i < batch.micro_batches(); ++i) {
    reference::Result result =
        reference::run(config, weights, batch.all(i),
                       {.gradients = true,
                        .aux_gradients = balance.aux_loss == AuxLoss::batch,
                        .z_gradients = balance.z_coefficient > 0.0,
                        .sequence_aux_gradients = balance.aux_loss == AuxLoss::sequence});
    const double by_targets = static_cast<double>(batch.targets(i)) /
                              static_cast<double>(std::max<std::int64_t>(batch.targets(), 1));
    const double by_tokens = static_cast<double>(batch.tokens(i)) / static_cast<double>(batch.tokens());
    step.loss += by_targets * result.loss;
    add_scaled(step.gradients, by_targets, result.grads);
    step.z_loss += balance.z_coefficient > 0.0 ? by_tokens * result.z_loss : 0.0;
    add_scaled(step.gradients, by_tokens * balance.z_coefficient, result.grads_z);
    const double aux = by_tokens * balance.aux_coefficient;
    add_scaled(step.gradients, aux, result.grads_aux);
    add_scaled(step.gradients, aux, result.grads_sequence_aux);
    if (balance.aux_loss != AuxLoss::none) {
      step.aux_loss +=
          by_tokens * (balance.aux_loss == AuxLoss::batch ? result.aux_loss : result.sequence_aux_loss);
    }
    std::size_t sparse_layer = 0;
    for (const std::vector<std::int64_t>& counts : result.tokens_per_expert) {
      for (std::size_t e = 0; e < counts.size(); ++e) {
        step.expert_loads[sparse_layer][e] += counts[e];
      }
      sparse_layer += counts.empty() ? 0 : 1;
    }
    step.micro_batches.push_back(std::move(result));
  }
  return step;
}

BalanceOptions random_balance(Dice& dice) {
  return {.aux_loss = static_cast<AuxLoss>(dice.between(0, 2)),
          .aux_coefficient = 0.3,
          .z_coefficient = dice.flip() ? 0.1 : 0.0};
}

namespace {

/// What a router's logits are like: their deviation for a row whose elements are independent, of deviation 1.
double typical_logit(const std::vector<double>& router, std::int64_t experts) {
  double squares = 0.0;
  for (const double weight : router) {
    squares += weight * weight;
  }
  return std::sqrt(squares / static_cast<double>(experts));
}

/// How close the closest choice of an expert was: the least distance between the last expert that a token
/// chose and the first that it did not, or between such groups, relative to a typical router logit. Infinite
/// when no choice is made.
double routing_margin(const ModelConfig& config, const reference::Parameters& weights,
                      const Sequences& sequences) {
  double margin = std::numeric_limits<double>::infinity();
  if (config.experts_per_token == config.experts) {
    return margin;
  }
  const hf::ParameterNames names(config.family);
  const reference::Result result =
      reference::run(config, weights, sequences, reference::Options::forward_only());
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const reference::Matrix& logits = result.router_logits[static_cast<std::size_t>(layer)];
    const double typical =
        config.sparse[layer] ? typical_logit(weights.at(names.router(layer)), config.experts) : 0.0;
    for (std::int64_t t = 0; t < logits.rows; ++t) {
      auto [order, group_margin] =
          preferences(config, logits.row(t),
                      config.expert_bias ? std::span(weights.at(names.selection_bias(layer)))
                                         : std::span<const double>());
      std::sort(order.begin(), order.end(), std::greater<>());
      const auto k = static_cast<std::size_t>(config.experts_per_token);
      margin = std::min(margin, std::min(order[k - 1] - order[k], group_margin) / typical);
    }
  }
  return margin;
}

/// Of all micro-batches.
double routing_margin(const ModelConfig& config, const reference::Parameters& weights,
                      const TinyBatch& batch) {
  double margin = std::numeric_limits<double>::infinity();
  for (int i = 0; i < batch.micro_batches(); ++i) {
    margin = std::min(margin, routing_margin(config, weights, batch.all(i)));
  }
  return margin;
}

}  // namespace

Problem draw_problem(Dice& dice, const ModelConfig& config, int micro_batches, int ranks, double margin,
                     bool bf16, std::span<const float> selection_bias) {
  const hf::ParameterNames names(config.family);
  // Weights that keep attention scores small where rounding is coarse: softmax multiplies their errors.
  const double deviation = bf16 ? 0.12 : 0.25;
  for (int i = 0; i < kTriesPerProblem; ++i) {
    Problem problem{config,
                    reference::random_parameters(
                        config, static_cast<std::uint64_t>(dice.between(0, 1'000'000)), deviation),
                    TinyBatch(dice, config, micro_batches, ranks)};
    for (std::int64_t layer = 0; layer < config.layers && !selection_bias.empty(); ++layer) {
      if (config.sparse[layer]) {
        problem.weights.at(names.selection_bias(layer)).assign(selection_bias.begin(), selection_bias.end());
      }
    }
    if (bf16) {
      for (auto& [name, values] : problem.weights) {
        for (double& value : values) {
          value = static_cast<double>(static_cast<float>(expedite::bf16(static_cast<float>(value))));
        }
      }
    }
    const bool clear = problem.batch.redraw(dice, config, [&](const std::vector<int>& beginning) {
      return routing_margin(config, problem.weights, Sequences{beginning}) >= margin;
    });
    // How far all turn may depend on the longest sequence.
    if (clear && routing_margin(config, problem.weights, problem.batch) >= margin) {
      return problem;
    }
  }
  fail("no weights and batch with a routing margin of {} in {} tries", margin, kTriesPerProblem);
}

}  // namespace expedite::model::tests
