#include "expedite/architecture/model_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "expedite/architecture/rotary_scaling.h"
#include "tests/error_text.h"
#include "tests/temporary_folder.h"

namespace expedite::architecture {
namespace {

using nlohmann::json;

json qwen3_moe(const json& changes = json::object()) {
  json config = {
      {"model_type", "qwen3_moe"}, {"vocab_size", 300},        {"hidden_size", 64}, {"num_hidden_layers", 4},
      {"num_attention_heads", 4},  {"num_key_value_heads", 2}, {"head_dim", 16},    {"num_experts", 8},
      {"num_experts_per_tok", 2}};
  config.update(changes);
  return config;
}

json mixtral(const json& changes = json::object()) {
  json config = {{"model_type", "mixtral"},      {"vocab_size", 300},        {"hidden_size", 64},
                 {"num_hidden_layers", 2},       {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                 {"intermediate_size", 96},      {"num_local_experts", 8},   {"num_experts_per_tok", 2},
                 {"max_position_embeddings", 64}};
  config.update(changes);
  return config;
}

json dots1(const json& changes = json::object()) {
  json config = qwen3_moe({{"model_type", "dots1"},
                           {"n_routed_experts", 8},
                           {"n_shared_experts", 2},
                           {"moe_intermediate_size", 24}});
  config.erase("num_experts");
  config.update(changes);
  return config;
}

json glm4_moe(const json& changes = json::object()) {
  json config = dots1({{"model_type", "glm4_moe"}});
  config.update(changes);
  return config;
}

ModelConfig parse(const json& config) {
  ModelConfig read = parse_model_config(config, "config.json");
  require_trainable(read, "config.json");
  return read;
}

TEST(ModelConfig, ReadsTheFixtures) {
  const ModelConfig qwen = read_model_config(EXPEDITE_FIXTURES "/hf/qwen3_moe_dense/config.json");
  EXPECT_EQ(qwen.family, Family::qwen3_moe);
  EXPECT_EQ(qwen.sparse, (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(qwen.hidden_size, 48);
  EXPECT_EQ(qwen.intermediate_size, 64);
  EXPECT_EQ(qwen.moe_intermediate_size, 16);
  EXPECT_EQ(qwen.kv_heads, 1);
  EXPECT_EQ(qwen.qkv_size(), 64 + 2 * 16);
  EXPECT_EQ(qwen.qk_norm, QkNorm::head);
  EXPECT_TRUE(qwen.norm_topk_prob);
  EXPECT_EQ(qwen.sliding_window, 0);
  EXPECT_EQ(qwen.rotary.theta, 1e6);
  EXPECT_EQ(json::parse(qwen.source)["max_window_layers"], 28);

  const ModelConfig mix = read_model_config(EXPEDITE_FIXTURES "/hf/mixtral/config.json");
  EXPECT_EQ(mix.family, Family::mixtral);
  EXPECT_EQ(mix.qk_norm, QkNorm::none);
  EXPECT_EQ(mix.moe_intermediate_size, 16);
  EXPECT_EQ(mix.experts, 8);
  EXPECT_FLOAT_EQ(mix.rms_norm_eps, 1e-5F);
  EXPECT_FLOAT_EQ(mix.router_aux_loss_coef, 0.02F);
}

TEST(ModelConfig, HasHuggingFacesDefaultsForQwen3Moe) {
  const ModelConfig config = parse({{"model_type", "qwen3_moe"}});
  EXPECT_EQ(config.vocab_size, 151936);
  EXPECT_EQ(config.hidden_size, 2048);
  EXPECT_EQ(config.layers, 24);
  EXPECT_EQ(config.heads, 32);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.intermediate_size, 6144);
  EXPECT_EQ(config.moe_intermediate_size, 768);
  EXPECT_EQ(config.experts, 128);
  EXPECT_EQ(config.experts_per_token, 8);
  EXPECT_EQ(config.max_position_embeddings, 32768);
  EXPECT_EQ(config.rotary.theta, 10000.0);
  EXPECT_FLOAT_EQ(config.rms_norm_eps, 1e-6F);
  EXPECT_FLOAT_EQ(config.initializer_range, 0.02F);
  EXPECT_FLOAT_EQ(config.router_aux_loss_coef, 0.001F);
  EXPECT_FALSE(config.norm_topk_prob);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_FALSE(config.output_bias);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.sliding_window, 0);
  EXPECT_EQ(config.sparse, std::vector<bool>(24, true));
  EXPECT_EQ(config.scoring, Scoring::softmax);
  EXPECT_FALSE(config.expert_bias);
  EXPECT_EQ(config.routed_scaling_factor, 1.0F);
  EXPECT_EQ(config.expert_groups, 1);
  EXPECT_EQ(config.shared_expert_intermediate_size, 0);
}

TEST(ModelConfig, HasHuggingFacesDefaultsForQwen2Moe) {
  const ModelConfig config = parse({{"model_type", "qwen2_moe"}});
  EXPECT_EQ(config.vocab_size, 151936);
  EXPECT_EQ(config.hidden_size, 2048);
  EXPECT_EQ(config.layers, 24);
  EXPECT_EQ(config.heads, 16);
  EXPECT_EQ(config.kv_heads, 16);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.intermediate_size, 5632);
  EXPECT_EQ(config.moe_intermediate_size, 1408);
  EXPECT_EQ(config.shared_expert_intermediate_size, 5632);
  EXPECT_TRUE(config.shared_expert_gate);
  EXPECT_EQ(config.experts, 60);
  EXPECT_EQ(config.experts_per_token, 4);
  EXPECT_EQ(config.max_position_embeddings, 32768);
  EXPECT_EQ(config.rotary.theta, 10000.0);
  EXPECT_FLOAT_EQ(config.rms_norm_eps, 1e-6F);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.output_bias);
  EXPECT_EQ(config.qk_norm, QkNorm::none);
  EXPECT_FALSE(config.norm_topk_prob);
  EXPECT_FALSE(config.expert_bias);
  EXPECT_EQ(config.scoring, Scoring::softmax);
  EXPECT_EQ(config.sparse, std::vector<bool>(24, true));
  EXPECT_EQ(config.sliding_window, 0);
}

TEST(ModelConfig, HasHuggingFacesDefaultsForDots1) {
  const ModelConfig config = parse({{"model_type", "dots1"},
                                    {"n_routed_experts", 128},
                                    {"n_shared_experts", 2},
                                    {"num_experts_per_tok", 6}});
  EXPECT_EQ(config.vocab_size, 152064);
  EXPECT_EQ(config.hidden_size, 4608);
  EXPECT_EQ(config.layers, 62);
  EXPECT_EQ(config.heads, 32);
  EXPECT_EQ(config.kv_heads, 32);
  EXPECT_EQ(config.head_dim, 144);
  EXPECT_EQ(config.intermediate_size, 10944);
  EXPECT_EQ(config.moe_intermediate_size, 1408);
  EXPECT_EQ(config.shared_expert_intermediate_size, 2816);
  EXPECT_FALSE(config.shared_expert_gate);
  EXPECT_EQ(config.max_position_embeddings, 2048);
  EXPECT_FLOAT_EQ(config.rms_norm_eps, 1e-6F);
  EXPECT_EQ(config.qk_norm, QkNorm::head);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_FALSE(config.output_bias);
  EXPECT_FALSE(config.norm_topk_prob);
  EXPECT_TRUE(config.expert_bias);
  EXPECT_EQ(config.scoring, Scoring::sigmoid);
  EXPECT_EQ(config.routed_scaling_factor, 1.0F);
  EXPECT_EQ(config.expert_groups, 1);
  EXPECT_EQ(config.top_groups, 1);
  EXPECT_EQ(config.sparse, std::vector<bool>(62, true));
  EXPECT_EQ(config.sliding_window, 0);  // it would begin at layer 62
}

TEST(ModelConfig, HasHuggingFacesDefaultsForGlm4Moe) {
  const ModelConfig config = parse({{"model_type", "glm4_moe"}, {"head_dim", 128}});
  EXPECT_EQ(config.vocab_size, 151552);
  EXPECT_EQ(config.hidden_size, 4096);
  EXPECT_EQ(config.layers, 46);
  EXPECT_EQ(config.heads, 96);
  EXPECT_EQ(config.kv_heads, 8);
  EXPECT_EQ(config.rotary.rotary_dim, 64);
  EXPECT_EQ(config.moe_intermediate_size, 1408);
  EXPECT_EQ(config.shared_expert_intermediate_size, 1408);
  EXPECT_EQ(config.experts, 128);
  EXPECT_EQ(config.experts_per_token, 8);
  EXPECT_EQ(config.max_position_embeddings, 131072);
  EXPECT_FLOAT_EQ(config.rms_norm_eps, 1e-5F);
  EXPECT_EQ(config.qk_norm, QkNorm::none);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_TRUE(config.norm_topk_prob);
  EXPECT_TRUE(config.expert_bias);
  EXPECT_FALSE(config.sparse[0]);
  EXPECT_TRUE(config.sparse[1]);
}

TEST(ModelConfig, HasHuggingFacesDefaultsForMixtral) {
  const ModelConfig config = parse({{"model_type", "mixtral"}});
  EXPECT_EQ(config.vocab_size, 32000);
  EXPECT_EQ(config.hidden_size, 4096);
  EXPECT_EQ(config.layers, 32);
  EXPECT_EQ(config.kv_heads, 8);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.moe_intermediate_size, 14336);
  EXPECT_EQ(config.experts, 8);
  EXPECT_EQ(config.experts_per_token, 2);
  EXPECT_EQ(config.max_position_embeddings, 131072);
  EXPECT_EQ(config.rotary.theta, 1e6);
  EXPECT_FLOAT_EQ(config.rms_norm_eps, 1e-5F);
  EXPECT_TRUE(config.norm_topk_prob);
}

TEST(ModelConfig, HasHuggingFacesDefaultsForDeepSeek) {
  const ModelConfig v3 = parse({{"model_type", "deepseek_v3"}});
  EXPECT_EQ(v3.hidden_size, 7168);
  EXPECT_EQ(v3.layers, 61);
  EXPECT_EQ(v3.attention, AttentionKind::latent);
  EXPECT_EQ(v3.heads, 128);
  EXPECT_EQ(v3.kv_heads, 128);
  EXPECT_EQ(v3.head_dim, 192);
  EXPECT_EQ(v3.value_dim, 128);
  EXPECT_EQ(v3.q_lora_rank, 1536);
  EXPECT_EQ(v3.kv_lora_rank, 512);
  EXPECT_EQ(v3.experts, 256);
  EXPECT_EQ(v3.experts_per_token, 8);
  EXPECT_EQ(v3.expert_groups, 8);
  EXPECT_EQ(v3.top_groups, 4);
  EXPECT_EQ(v3.group_score, GroupScore::best_two);
  EXPECT_EQ(v3.count(LayerKind::dense), 3);
  EXPECT_FLOAT_EQ(v3.routed_scaling_factor, 2.5F);
  EXPECT_TRUE(v3.rotary_neighbours);
  EXPECT_TRUE(v3.expert_bias);
  EXPECT_FLOAT_EQ(v3.attention_scale, static_cast<float>(1.0 / std::sqrt(192.0)));

  const ModelConfig v2 = parse({{"model_type", "deepseek_v2"}, {"num_experts_per_tok", 6}});
  EXPECT_EQ(v2.hidden_size, 4096);
  EXPECT_EQ(v2.experts, 64);
  EXPECT_EQ(v2.shared_expert_intermediate_size, 2 * 1407);
  EXPECT_EQ(v2.scoring, Scoring::softmax);
  EXPECT_EQ(v2.expert_groups, 1);
  EXPECT_FALSE(v2.norm_topk_prob);
  EXPECT_FALSE(v2.expert_bias);
  EXPECT_EQ(v2.sparse, std::vector<bool>(32, true));
}

json deepseek(const char* type, const json& changes = json::object()) {
  json config = {{"model_type", type},        {"vocab_size", 300},
                 {"hidden_size", 64},         {"num_hidden_layers", 3},
                 {"num_attention_heads", 4},  {"num_key_value_heads", 4},
                 {"kv_lora_rank", 16},        {"q_lora_rank", nullptr},
                 {"qk_nope_head_dim", 12},    {"qk_rope_head_dim", 8},
                 {"v_head_dim", 10},          {"n_routed_experts", 8},
                 {"num_experts_per_tok", 2},  {"moe_intermediate_size", 16},
                 {"first_k_dense_replace", 1}};
  config.update(changes);
  return config;
}

TEST(ModelConfig, ReadsLatentAttention) {
  const ModelConfig plain = parse(deepseek("deepseek_v2"));
  EXPECT_EQ(plain.q_lora_rank, 0);
  EXPECT_EQ(plain.head_dim, 20);
  EXPECT_EQ(plain.qkv_size(), 4 * (20 + 20 + 10));
  EXPECT_EQ(plain.context_size(), 40);
  EXPECT_EQ(plain.compressed_size(), 24);
  EXPECT_EQ(plain.sparse, (std::vector<bool>{false, true, true}));
  const ModelConfig grouped = parse(
      deepseek("deepseek_v2", {{"topk_method", "group_limited_greedy"}, {"n_group", 8}, {"topk_group", 3}}));
  EXPECT_EQ(grouped.expert_groups, 8);
  EXPECT_EQ(grouped.top_groups, 3);
  EXPECT_EQ(grouped.group_score, GroupScore::best);
  // mscale: 0.1 ln(40) + 1, squared on the scores; cosine and sine by the ratio of both, here one.
  const json yarn = {{"type", "yarn"},
                     {"factor", 40},
                     {"original_max_position_embeddings", 64},
                     {"mscale", 1.0},
                     {"mscale_all_dim", 1.0}};
  const ModelConfig scaled = parse(deepseek(
      "deepseek_v3",
      {{"rope_scaling", yarn}, {"n_group", 1}, {"topk_group", 1}, {"max_position_embeddings", 2560}}));
  const double mscale = 0.1 * std::log(40.0) + 1.0;
  EXPECT_FLOAT_EQ(scaled.attention_scale, static_cast<float>(mscale * mscale / std::sqrt(20.0)));
  EXPECT_FLOAT_EQ(scaled.rotary_attention_factor, 1.0F);
  EXPECT_FALSE(
      parse(deepseek("deepseek_v3", {{"rope_interleave", false}, {"n_group", 1}})).rotary_neighbours);
  const auto refusal = [](const json& source) { return error_text([&] { (void)parse(source); }); };
  const ModelConfig noted = parse(deepseek("deepseek_v2", {{"num_key_value_heads", 2}}));
  EXPECT_EQ(noted.kv_heads, 4);
  ASSERT_EQ(noted.notes.size(), 1U);
  EXPECT_NE(noted.notes[0].find("num_key_value_heads 2 has no effect"), std::string::npos);
  EXPECT_TRUE(mentions(refusal(deepseek("deepseek_v2", {{"qk_rope_head_dim", 7}})), {"qk_rope_head_dim 7"}));
  EXPECT_TRUE(mentions(refusal(deepseek("deepseek_v2", {{"num_experts_per_tok", nullptr}})),
                       {"num_experts_per_tok"}));
  const json fp8 = {{"quant_method", "fp8"}};
  EXPECT_TRUE(mentions(refusal(deepseek("deepseek_v3", {{"n_group", 1}, {"quantization_config", fp8}})),
                       {"quantization_config", "fp8"}));
}

TEST(ModelConfig, ReadsGptOss) {
  const ModelConfig config = parse({{"model_type", "gpt_oss"}, {"num_hidden_layers", 3}});
  EXPECT_EQ(config.hidden_size, 2880);
  EXPECT_EQ(config.experts, 128);
  EXPECT_EQ(config.experts_per_token, 4);
  EXPECT_EQ(config.mlp, MlpKind::clamped);
  EXPECT_TRUE(config.attention_sinks && config.router_bias && config.mlp_bias && config.qkv_bias);
  EXPECT_EQ(config.sliding_window, 128);
  EXPECT_EQ(config.windowed, (std::vector<bool>{true, false, true}));
  EXPECT_TRUE(config.norm_topk_prob);
  const json types = {"full_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(parse({{"model_type", "gpt_oss"}, {"num_hidden_layers", 3}, {"layer_types", types}}).windowed,
            (std::vector<bool>{false, false, true}));
  const auto refusal = [](const json& source) { return error_text([&] { (void)parse(source); }); };
  EXPECT_TRUE(mentions(refusal({{"model_type", "gpt_oss"}, {"swiglu_limit", 5.0}}), {"swiglu_limit"}));
  EXPECT_TRUE(
      mentions(refusal({{"model_type", "gpt_oss"}, {"experts_per_token", 2}, {"num_experts_per_tok", 4}}),
               {"experts_per_token 2"}));
  EXPECT_EQ(
      parse({{"model_type", "gpt_oss"}, {"quantization_config", {{"quant_method", "mxfp4"}}}}).quantization,
      "mxfp4");
}

TEST(ModelConfig, ReadsDenseFamilies) {
  const ModelConfig llama = parse({{"model_type", "llama"}, {"mlp_bias", true}, {"attention_bias", true}});
  EXPECT_EQ(llama.experts, 0);
  EXPECT_EQ(llama.count(LayerKind::dense), 32);
  EXPECT_TRUE(llama.mlp_bias && llama.qkv_bias && llama.output_bias);
  EXPECT_EQ(llama.kv_heads, 32);
  EXPECT_EQ(parse({{"model_type", "mistral"}}).window(31), 4096);
  EXPECT_EQ(parse({{"model_type", "mistral"}, {"sliding_window", nullptr}}).sliding_window, 0);
  EXPECT_TRUE(parse({{"model_type", "qwen2"}}).qkv_bias);
  EXPECT_FALSE(parse({{"model_type", "qwen2"}}).output_bias);
  const json windows = {{"model_type", "qwen3"},
                        {"num_hidden_layers", 4},
                        {"use_sliding_window", true},
                        {"sliding_window", 8},
                        {"max_window_layers", 3}};
  EXPECT_EQ(parse(windows).windowed, (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(parse(windows).head_dim, 128);
  EXPECT_EQ(parse(windows).qk_norm, QkNorm::head);
  EXPECT_EQ(parse({{"model_type", "olmoe"}}).qk_norm, QkNorm::whole);
  EXPECT_TRUE(mentions(error_text([] {
                         (void)parse({{"model_type", "olmoe"}, {"clip_qkv", 8.0}});
                       }),
                       {"clip_qkv"}));
}

TEST(ModelConfig, WorksOutHeads) {
  EXPECT_EQ(parse(qwen3_moe({{"head_dim", nullptr}})).head_dim, 16);
  EXPECT_EQ(parse(qwen3_moe({{"head_dim", 32}})).query_size(), 128);
  EXPECT_EQ(parse(mixtral()).head_dim, 16);
  EXPECT_EQ(parse(mixtral({{"num_key_value_heads", nullptr}})).kv_heads, 4);
}

TEST(ModelConfig, WorksOutSparseLayers) {
  using Layers = std::vector<bool>;
  EXPECT_EQ(parse(qwen3_moe({{"decoder_sparse_step", 2}})).sparse, (Layers{false, true, false, true}));
  EXPECT_EQ(parse(qwen3_moe({{"mlp_only_layers", {0, 3, 77}}})).sparse, (Layers{false, true, true, false}));
  EXPECT_EQ(parse(qwen3_moe({{"mlp_only_layers", nullptr}})).sparse, Layers(4, true));
  EXPECT_EQ(parse(qwen3_moe({{"num_experts", 0}})).sparse, Layers(4, false));
  EXPECT_EQ(parse(mixtral({{"decoder_sparse_step", 2}})).sparse, Layers(2, true));
}

TEST(ModelConfig, ReadsTheMixtureOfExpertsOfDeepSeek) {
  const json changes = {{"n_group", 4},
                        {"topk_group", 2},
                        {"num_experts_per_tok", 3},
                        {"norm_topk_prob", true},
                        {"attention_bias", true},
                        {"first_k_dense_replace", 3},
                        {"routed_scaling_factor", 2.5},
                        {"scoring_func", "noaux_tc"}};
  for (const json& source : {dots1(changes), glm4_moe(changes)}) {
    const ModelConfig config = parse(source);
    EXPECT_EQ(config.experts, 8);
    EXPECT_EQ(config.expert_groups, 4);
    EXPECT_EQ(config.top_groups, 2);
    EXPECT_EQ(config.scoring, Scoring::sigmoid);
    EXPECT_TRUE(config.norm_topk_prob);
    EXPECT_EQ(config.routed_scaling_factor, 2.5F);
    EXPECT_EQ(config.shared_expert_intermediate_size, 48);
    EXPECT_EQ(config.sparse, (std::vector<bool>{false, false, false, true}));
    EXPECT_TRUE(config.qkv_bias);
    EXPECT_EQ(config.output_bias, config.family == Family::dots1);
  }
  EXPECT_EQ(parse(dots1({{"first_k_dense_replace", 9}})).sparse, std::vector<bool>(4, false));
  EXPECT_EQ(parse(dots1({{"n_shared_experts", 0}})).shared_expert_intermediate_size, 0);
  EXPECT_EQ(parse(glm4_moe({{"use_qk_norm", true}})).qk_norm, QkNorm::head);
}

TEST(ModelConfig, ReadsThePartialRotaryFactor) {
  EXPECT_EQ(parse(glm4_moe()).rotary.rotary_dim, 8);
  const std::vector<float> frequencies = inverse_frequencies(parse(glm4_moe()).rotary, 1);
  EXPECT_EQ(frequencies.size(), 4U);
  EXPECT_FLOAT_EQ(frequencies[1], 0.1F);  // 10000 to the power of -2/8
  EXPECT_EQ(parse(glm4_moe({{"partial_rotary_factor", 1}})).rotary.rotary_dim, 16);
  EXPECT_EQ(parse(glm4_moe({{"partial_rotary_factor", 0.3}})).rotary.rotary_dim, 4);  // rounded down
  const json newer = {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}};
  EXPECT_EQ(parse(glm4_moe({{"rope_parameters", newer}})).rotary.rotary_dim, 4);
  EXPECT_EQ(parse(qwen3_moe({{"partial_rotary_factor", 1.0}})).rotary.rotary_dim, 16);
  EXPECT_TRUE(mentions(error_text([&] {
                         (void)parse(qwen3_moe({{"rope_parameters", newer}}));
                       }),
                       {"partial_rotary_factor"}));
}

TEST(ModelConfig, WorksOutTheSlidingWindow) {
  EXPECT_EQ(parse(qwen3_moe({{"sliding_window", 8}})).sliding_window, 0);
  EXPECT_EQ(parse(qwen3_moe({{"sliding_window", 8}, {"use_sliding_window", true}})).sliding_window, 8);
  // Eager attention masks all layers, whatever max_window_layers says.
  EXPECT_EQ(parse(qwen3_moe({{"sliding_window", 8}, {"use_sliding_window", true}, {"max_window_layers", 99}}))
                .sliding_window,
            8);
  EXPECT_EQ(parse(qwen3_moe({{"use_sliding_window", true}})).sliding_window, 4096);
  EXPECT_EQ(parse(qwen3_moe({{"use_sliding_window", true}, {"sliding_window", nullptr}})).sliding_window, 0);
  EXPECT_EQ(parse(mixtral({{"sliding_window", 8}})).sliding_window, 8);
  EXPECT_EQ(parse(mixtral({{"sliding_window", nullptr}})).sliding_window, 0);
  EXPECT_EQ(parse(mixtral({{"sliding_window", 8}, {"use_sliding_window", false}})).sliding_window, 0);
  const json types = {"sliding_attention", "sliding_attention"};
  EXPECT_EQ(parse(mixtral({{"sliding_window", 8}, {"layer_types", types}})).sliding_window, 8);
}

TEST(ModelConfig, WorksOutTheSlidingWindowOfDots1) {
  const json sliding =
      json::array({"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention"});
  EXPECT_EQ(parse(dots1({{"sliding_window", 8}})).sliding_window, 0);
  EXPECT_EQ(parse(dots1({{"sliding_window", 8}, {"max_window_layers", 0}})).sliding_window, 8);
  EXPECT_EQ(parse(dots1({{"sliding_window", nullptr}, {"max_window_layers", 2}})).sliding_window, 0);
  EXPECT_EQ(parse(dots1({{"sliding_window", 8}, {"layer_types", sliding}})).sliding_window, 8);
  const ModelConfig later = parse(dots1({{"sliding_window", 8}, {"max_window_layers", 2}}));
  EXPECT_EQ(later.windowed, (std::vector<bool>{false, false, true, true}));
  EXPECT_EQ(later.window(1), 0);
  EXPECT_EQ(later.window(2), 8);
}

TEST(ModelConfig, ReadsTheProjectsOwnRouters) {
  const ModelConfig config = parse(qwen3_moe({{"scoring_func", "sigmoid"},
                                              {"moe_router_enable_expert_bias", true},
                                              {"routed_scaling_factor", 2.5}}));
  EXPECT_EQ(config.scoring, Scoring::sigmoid);
  EXPECT_TRUE(config.expert_bias);
  EXPECT_EQ(config.routed_scaling_factor, 2.5F);
}

TEST(ModelConfig, AcceptsBothSpellingsOfTheExpertCount) {
  json config = qwen3_moe({{"num_local_experts", 6}});
  EXPECT_TRUE(mentions(error_text([&] { (void)parse(config); }), {"num_experts", "num_local_experts"}));
  config.erase("num_experts");
  EXPECT_EQ(parse(config).experts, 6);
}

TEST(ModelConfig, RefusesWhatItCannotMean) {
  struct Case {
    json config;
    const char* field;
  };
  const std::vector<Case> cases = {
      {{{"vocab_size", 3}}, "model_type"},
      {{{"model_type", "rwkv"}}, "model_type \"rwkv\" is not known; legal are llama, mistral"},
      {{{"model_type", "gpt2"},
        {"vocab_size", 9},
        {"n_embd", 8},
        {"n_head", 2},
        {"n_layer", 1},
        {"n_positions", 4}},
       "learned positions"},
      {{{"model_type", 3}}, "model_type"},
      {qwen3_moe({{"model_type", "qwen2_moe"}, {"use_sliding_window", true}}), "use_sliding_window"},
      {qwen3_moe({{"model_type", "qwen2_moe"}, {"shared_expert_intermediate_size", 0}}),
       "shared_expert_intermediate_size"},
      {qwen3_moe({{"model_type", "qwen2_moe"}, {"qkv_bias", 1}}), "qkv_bias"},
      {dots1({{"n_routed_experts", nullptr}}), "n_routed_experts"},
      {dots1({{"n_shared_experts", nullptr}}), "n_shared_experts"},
      {dots1({{"n_shared_experts", 2147483647}}), "n_shared_experts"},
      {dots1({{"num_experts_per_tok", nullptr}}), "num_experts_per_tok"},
      {dots1({{"scoring_func", "softmax"}}), "scoring_func"},
      {dots1({{"topk_method", "greedy"}}), "topk_method"},
      {dots1({{"moe_layer_freq", 2}}), "moe_layer_freq"},
      {dots1({{"moe_router_enable_expert_bias", false}}), "moe_router_enable_expert_bias"},
      {dots1({{"first_k_dense_replace", -1}}), "first_k_dense_replace"},
      {dots1({{"n_group", 3}}), "n_group 3"},
      {dots1({{"n_group", 8}}), "n_group 8"},
      {dots1({{"n_group", 16}}), "n_group 16"},
      {dots1({{"n_group", 2}, {"topk_group", 3}}), "topk_group 3"},
      {dots1({{"n_group", 4}, {"num_experts_per_tok", 3}}), "num_experts_per_tok 3"},
      {dots1({{"layer_types", {"full_attention"}}}), "layer_types"},
      {dots1({{"layer_types", {"full_attention", "full_attention", "full_attention", "sparse"}}}), "layer 3"},
      {dots1({{"layer_types", 3}}), "layer_types"},
      {dots1({{"partial_rotary_factor", 0.5}}), "partial_rotary_factor"},
      {glm4_moe({{"partial_rotary_factor", 0.05}}), "partial_rotary_factor"},
      {glm4_moe({{"partial_rotary_factor", 0.2}}), "partial_rotary_factor"},
      {glm4_moe({{"partial_rotary_factor", 1.5}}), "partial_rotary_factor"},
      {glm4_moe({{"partial_rotary_factor", 0}}), "partial_rotary_factor"},
      {glm4_moe({{"partial_rotary_factor", 0.5},
                 {"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}}}}),
       "partial_rotary_factor"},
      {glm4_moe({{"num_nextn_predict_layers", 17}}), "num_nextn_predict_layers"},
      {qwen3_moe({{"hidden_act", "gelu"}}), "hidden_act \"gelu\""},
      {qwen3_moe({{"vocab_size", 0}}), "vocab_size"},
      {qwen3_moe({{"vocab_size", -5}}), "vocab_size"},
      {qwen3_moe({{"vocab_size", 3.5}}), "vocab_size"},
      {qwen3_moe({{"vocab_size", "300"}}), "vocab_size"},
      {qwen3_moe({{"vocab_size", 1LL << 31}}), "vocab_size"},
      {qwen3_moe({{"vocab_size", 18446744073709551615ULL}}), "vocab_size"},
      {qwen3_moe({{"hidden_size", true}}), "hidden_size"},
      {qwen3_moe({{"num_hidden_layers", 0}}), "num_hidden_layers"},
      {qwen3_moe({{"num_hidden_layers", 2000000000}}), "num_hidden_layers"},
      {qwen3_moe({{"num_key_value_heads", 3}}), "num_key_value_heads"},
      {qwen3_moe({{"num_key_value_heads", 0}}), "num_key_value_heads"},
      {qwen3_moe({{"num_key_value_heads", 8}}), "num_key_value_heads"},
      {qwen3_moe({{"head_dim", 15}}), "head_dim"},
      {qwen3_moe({{"head_dim", 0}}), "head_dim"},
      {qwen3_moe({{"head_dim", 2147483646}}), "head_dim"},
      {qwen3_moe({{"head_dim", 65536}, {"num_attention_heads", 2147483646}}), "head_dim"},
      {qwen3_moe({{"head_dim", nullptr}, {"hidden_size", 66}}), "head_dim"},
      {qwen3_moe({{"num_experts", -1}}), "num_experts"},
      {mixtral({{"num_local_experts", 0}}), "num_local_experts"},
      {qwen3_moe({{"num_experts_per_tok", 9}}), "num_experts_per_tok"},
      {qwen3_moe({{"num_experts_per_tok", 0}}), "num_experts_per_tok"},
      {qwen3_moe({{"decoder_sparse_step", 0}}), "decoder_sparse_step"},
      {qwen3_moe({{"mlp_only_layers", 3}}), "mlp_only_layers"},
      {qwen3_moe({{"mlp_only_layers", {-1}}}), "mlp_only_layers"},
      {qwen3_moe({{"moe_intermediate_size", 0}}), "moe_intermediate_size"},
      {qwen3_moe({{"norm_topk_prob", 1}}), "norm_topk_prob"},
      {mixtral({{"norm_topk_prob", false}}), "norm_topk_prob"},
      {mixtral({{"attention_bias", true}}), "attention_bias"},
      {qwen3_moe({{"attention_dropout", 0.1}}), "attention_dropout"},
      {mixtral({{"router_jitter_noise", 0.1}}), "router_jitter_noise"},
      {qwen3_moe({{"partial_rotary_factor", 0.5}}), "partial_rotary_factor"},
      {qwen3_moe({{"quantization_config", {{"bits", 4}}}}), "quantization_config"},
      {qwen3_moe({{"rms_norm_eps", 0}}), "rms_norm_eps"},
      {qwen3_moe({{"rms_norm_eps", 1e300}}), "rms_norm_eps"},
      {qwen3_moe({{"initializer_range", -1}}), "initializer_range"},
      {qwen3_moe({{"router_aux_loss_coef", "x"}}), "router_aux_loss_coef"},
      {qwen3_moe({{"routed_scaling_factor", 0}}), "routed_scaling_factor"},
      {qwen3_moe({{"scoring_func", "tanh"}}), "scoring_func"},
      {qwen3_moe({{"moe_router_enable_expert_bias", "yes"}}), "moe_router_enable_expert_bias"},
      {mixtral({{"sliding_window", 0}}), "sliding_window"},
      {mixtral({{"layer_types", {"full_attention", "sliding_attention"}}}), "layer_types"},
      {mixtral({{"layer_types", 3}}), "layer_types"},
      {qwen3_moe({{"rope_theta", 0}}), "rope_theta"},
      {qwen3_moe({{"rope_scaling", 3}}), "rope_scaling"},
      {qwen3_moe({{"rope_scaling", json::object()}}), "rope_type"},
      {qwen3_moe({{"rope_scaling", {{"rope_type", "su"}}}}), "rope_type \"su\""},
      {qwen3_moe({{"rope_scaling", {{"rope_type", "linear"}}}}), "factor"},
      {qwen3_moe({{"rope_scaling", {{"type", "linear"}, {"factor", 0.5}}}}), "factor"},
      {qwen3_moe({{"rope_scaling", {{"rope_type", "linear"}, {"type", "yarn"}, {"factor", 2}}}}),
       "contradict"},
      {qwen3_moe({{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 2}}}}), "low_freq_factor"},
      {qwen3_moe({{"head_dim", 2}, {"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}}}), "head_dim"},
      {qwen3_moe(
           {{"rope_parameters", {{"rope_type", "default"}}}, {"rope_scaling", {{"rope_type", "default"}}}}),
       "rope_parameters"},
      {qwen3_moe({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5}}}, {"rope_theta", 6}}),
       "rope_theta"},
      {qwen3_moe({{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}}), "rope_type"},
  };
  for (const Case& bad : cases) {
    EXPECT_TRUE(mentions(error_text([&] { (void)parse(bad.config); }), {"config.json", bad.field}))
        << bad.config.dump();
  }
  EXPECT_TRUE(mentions(error_text([] { (void)parse(json::array()); }), {"config.json"}));
}

TEST(ModelConfig, RefusesBadFiles) {
  const TemporaryFolder folder;
  const auto read = [&](const char* content) {
    const auto path = folder.write("config.json", content);
    return error_text([&] { (void)read_model_config(path); });
  };
  EXPECT_TRUE(mentions(read(""), {"config.json", "JSON"}));
  EXPECT_TRUE(mentions(read("{\"rms_norm_eps\":1e999}"), {"config.json", "JSON"}));
  EXPECT_TRUE(mentions(read("{\"vocab_size\":3,\"vocab_size\":4}"), {"vocab_size", "twice"}));
  EXPECT_TRUE(mentions(read(std::string(100000, '[').c_str()), {"nests deeper"}));
  EXPECT_TRUE(mentions(error_text([&] { (void)read_model_config(folder / "none"); }), {"none"}));
}

}  // namespace
}  // namespace expedite::architecture
