// The reference's gradients against differences of its own losses, over the options that no fixture has.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "expedite/base/random.h"
#include "tests/reference/model.h"

namespace expedite::reference {
namespace {

using nlohmann::json;

struct Case {
  const char* name;
  json changes;
  // Where clamping begins, so near to 0 that some values are beyond; 0: where the family has it.
  float swiglu_limit = 0.0F;
};

void PrintTo(const Case& option, std::ostream* stream) {
  *stream << option.name;
}

json tiny_config(const json& changes) {
  json config = {{"model_type", "qwen3_moe"},
                 {"vocab_size", 11},
                 {"hidden_size", 6},
                 {"num_hidden_layers", 3},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 4},
                 {"num_experts", 5},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 3},
                 {"intermediate_size", 7},
                 {"norm_topk_prob", true},
                 {"mlp_only_layers", {1}}};
  config.update(changes);
  return config;
}

// Shared experts, groups, and a dense first layer.
json deepseek_moe(const json& changes) {
  json config = {{"n_routed_experts", 6},     {"n_shared_experts", 2},  {"n_group", 3},
                 {"topk_group", 2},           {"norm_topk_prob", true}, {"routed_scaling_factor", 2.5},
                 {"first_k_dense_replace", 1}};
  config.update(changes);
  return config;
}

// Latent attention with values of another size than keys, besides the above.
json deepseek(const json& changes) {
  json config = deepseek_moe({{"num_key_value_heads", 4},
                              {"q_lora_rank", 5},
                              {"kv_lora_rank", 3},
                              {"qk_nope_head_dim", 3},
                              {"qk_rope_head_dim", 4},
                              {"v_head_dim", 5},
                              {"head_dim", nullptr}});
  config.update(changes);
  return config;
}

json dense(const json& changes) {
  json config = {{"num_experts", nullptr},
                 {"num_experts_per_tok", nullptr},
                 {"moe_intermediate_size", nullptr},
                 {"mlp_only_layers", nullptr}};
  config.update(changes);
  return config;
}

struct Loss {
  const char* name;
  double Result::*value;
  Gradients Result::*gradients;
  bool of_routers;
};
constexpr std::array kLosses = {
    Loss{"loss", &Result::loss, &Result::grads, false},
    Loss{"aux_loss", &Result::aux_loss, &Result::grads_aux, true},
    Loss{"z_loss", &Result::z_loss, &Result::grads_z, true},
    Loss{"sequence_aux_loss", &Result::sequence_aux_loss, &Result::grads_sequence_aux, true},
};

class FiniteDifference : public testing::TestWithParam<Case> {
 protected:
  static constexpr std::size_t kSamples = 12;  // of each parameter
  static constexpr double kStep = 1e-6;

  FiniteDifference()
      : config_(architecture::parse_model_config(tiny_config(GetParam().changes), "test")),
        parameters_(random_parameters(config_, 17, 0.5)) {
    if (GetParam().swiglu_limit > 0.0F) {
      config_.swiglu_limit = GetParam().swiglu_limit;
    }
  }

  // All elements of a small parameter, else some.
  static std::set<std::size_t> samples(const std::string& name, std::size_t size) {
    const Philox random(5, stream_of(name));
    std::set<std::size_t> chosen;
    for (std::uint64_t draw = 0; chosen.size() < std::min(kSamples, size); ++draw) {
      chosen.insert(random.bits(draw) % size);
    }
    return chosen;
  }

  Result forward() const { return run(config_, parameters_, kSequences, Options::forward_only()); }

  // Lengths that differ, with one that has no target and one that is empty.
  const std::vector<std::vector<int>> kSequences = {{3, 1, 4, 1, 5, 9, 2}, {6}, {}, {5, 3, 10, 8}};
  ModelConfig config_;
  Parameters parameters_;
};

TEST_P(FiniteDifference, AgreesWithEveryGradient) {
  const Result result = run(config_, parameters_, kSequences, {true, true, true, true});
  std::array<double, kLosses.size()> largest{};
  ASSERT_FALSE(result.grads.empty());
  for (const auto& [name, gradient] : result.grads) {
    std::vector<double>& values = parameters_.at(name);
    ASSERT_EQ(gradient.size(), values.size()) << name;
    for (const std::size_t i : samples(name, values.size())) {
      const double kept = values[i];
      values[i] = kept + kStep;
      const Result above = forward();
      values[i] = kept - kStep;
      const Result below = forward();
      values[i] = kept;
      for (std::size_t n = 0; n < kLosses.size(); ++n) {
        const Loss& loss = kLosses[n];
        const double slope = (above.*loss.value - below.*loss.value) / (2 * kStep);
        const double expected = (result.*loss.gradients).at(name)[i];
        EXPECT_NEAR(expected, slope, 1e-7 + 1e-6 * std::abs(expected))
            << loss.name << " by " << name << "[" << i << "]";
        largest[n] = std::max(largest[n], std::abs(expected));
      }
    }
  }
  const bool routes = config_.count(architecture::LayerKind::moe) > 0;
  for (std::size_t n = 0; n < kLosses.size(); ++n) {
    if (kLosses[n].of_routers && !routes) {
      EXPECT_EQ(largest[n], 0.0) << kLosses[n].name;
    } else {
      EXPECT_GT(largest[n], 1e-4) << kLosses[n].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Options, FiniteDifference,
    testing::Values(
        Case{"plain", json::object()}, Case{"no_renormalise", {{"norm_topk_prob", false}}},
        Case{"sigmoid_with_bias",
             {{"scoring_func", "sigmoid"},
              {"moe_router_enable_expert_bias", true},
              {"routed_scaling_factor", 2.5}}},
        Case{"sigmoid_no_renormalise",
             {{"scoring_func", "sigmoid"}, {"norm_topk_prob", false}, {"routed_scaling_factor", 0.5}}},
        Case{"softmax_with_bias", {{"moe_router_enable_expert_bias", true}}},
        Case{"tied", {{"tie_word_embeddings", true}}}, Case{"attention_bias", {{"attention_bias", true}}},
        Case{"sliding_window", {{"use_sliding_window", true}, {"sliding_window", 2}}},
        Case{"every_expert", {{"num_experts_per_tok", 5}, {"scoring_func", "sigmoid"}}},
        Case{"one_expert", {{"num_experts_per_tok", 1}, {"norm_topk_prob", false}}},
        Case{"yarn",
             {{"rope_scaling",
               {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 8192}}}}},
        Case{"qwen2_moe", {{"model_type", "qwen2_moe"}, {"shared_expert_intermediate_size", 5}}},
        Case{"dots1", deepseek_moe({{"model_type", "dots1"}})},
        Case{"dots1_one_group", deepseek_moe({{"model_type", "dots1"},
                                              {"n_group", 1},
                                              {"topk_group", 1},
                                              {"norm_topk_prob", false},
                                              {"n_shared_experts", 0},
                                              {"attention_bias", true}})},
        Case{"glm4_moe",
             deepseek_moe({{"model_type", "glm4_moe"}, {"attention_bias", true}, {"use_qk_norm", true}})},
        Case{"glm4_moe_yarn", deepseek_moe({{"model_type", "glm4_moe"},
                                            {"head_dim", 8},
                                            {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}})},
        Case{"mixtral", {{"model_type", "mixtral"}, {"intermediate_size", 3}, {"sliding_window", 3}}},
        Case{"llama", dense({{"model_type", "llama"}})},
        Case{"llama_with_biases", dense({{"model_type", "llama"},
                                         {"attention_bias", true},
                                         {"mlp_bias", true},
                                         {"tie_word_embeddings", true},
                                         {"rope_scaling",
                                          {{"rope_type", "llama3"},
                                           {"factor", 8.0},
                                           {"low_freq_factor", 1.0},
                                           {"high_freq_factor", 4.0},
                                           {"original_max_position_embeddings", 256}}}})},
        Case{"mistral", dense({{"model_type", "mistral"}, {"sliding_window", 3}})},
        Case{"qwen2", dense({{"model_type", "qwen2"},
                             {"use_sliding_window", true},
                             {"sliding_window", 2},
                             {"max_window_layers", 1}})},
        Case{"qwen3", dense({{"model_type", "qwen3"},
                             {"attention_bias", true},
                             {"use_sliding_window", true},
                             {"sliding_window", 4},
                             {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}})},
        Case{"olmoe", {{"model_type", "olmoe"}, {"intermediate_size", 3}}},
        Case{"olmoe_with_biases",
             {{"model_type", "olmoe"}, {"intermediate_size", 3}, {"attention_bias", true}}},
        Case{"gpt_oss", {{"model_type", "gpt_oss"}, {"intermediate_size", 3}, {"sliding_window", 3}}},
        Case{"gpt_oss_clamped",
             {{"model_type", "gpt_oss"},
              {"intermediate_size", 5},
              {"sliding_window", 2},
              {"rope_scaling",
               {{"rope_type", "yarn"},
                {"factor", 32.0},
                {"original_max_position_embeddings", 4096},
                {"truncate", false}}}},
             0.75F},
        Case{"gpt_oss_without_biases",
             {{"model_type", "gpt_oss"}, {"intermediate_size", 3}, {"attention_bias", false}}},
        Case{"deepseek_v2", deepseek({{"model_type", "deepseek_v2"}})},
        Case{"deepseek_v2_group_limited", deepseek({{"model_type", "deepseek_v2"},
                                                    {"q_lora_rank", nullptr},
                                                    {"topk_method", "group_limited_greedy"},
                                                    {"n_routed_experts", 9},
                                                    {"num_experts_per_tok", 3},
                                                    {"attention_bias", true}})},
        Case{"deepseek_v2_compressed_with_biases", deepseek({{"model_type", "deepseek_v2"},
                                                             {"attention_bias", true},
                                                             {"n_shared_experts", nullptr},
                                                             {"topk_method", "group_limited_greedy"},
                                                             {"n_group", 6},  // of one expert each
                                                             {"topk_group", 3}})},
        Case{"deepseek_v3", deepseek({{"model_type", "deepseek_v3"}})},
        Case{"deepseek_v3_halves", deepseek({{"model_type", "deepseek_v3"},
                                             {"q_lora_rank", nullptr},
                                             {"rope_interleave", false},
                                             {"norm_topk_prob", false},
                                             {"rope_scaling",
                                              {{"rope_type", "yarn"},
                                               {"factor", 40.0},
                                               {"original_max_position_embeddings", 4096},
                                               {"mscale", 0.7},
                                               {"mscale_all_dim", 1.0}}}})},
        Case{"deepseek_v3_with_biases",
             deepseek({{"model_type", "deepseek_v3"}, {"attention_bias", true}, {"n_shared_experts", 0}})},
        Case{"deepseek_v3_dense", deepseek({{"model_type", "deepseek_v3"}, {"n_routed_experts", 0}})}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace expedite::reference
