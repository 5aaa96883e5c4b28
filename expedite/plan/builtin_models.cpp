// Published models by name. Sizes are those of each model's Hugging Face config.json, or of the paper named
// beside it.
#include <algorithm>
#include <array>
#include <functional>

#include "expedite/plan/transformer.h"

namespace expedite::plan {
namespace {

/// A model of dense layers with grouped-query attention and gated MLPs.
Transformer llama(const char* name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                  std::int64_t kv_heads, std::int64_t ffn, std::int64_t vocab) {
  Transformer model;
  model.name = name;
  model.vocab = vocab;
  model.hidden = hidden;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.head_dim = hidden / heads;
  model.ffn = ffn;
  model.layers.assign(layers, LayerKind::dense);
  return model;
}

/// GPT-2's shape: four times as wide inside, learned positions, biases everywhere, one embedding.
Transformer gpt(const char* name, std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  Transformer model = llama(name, layers, hidden, heads, heads, 4 * hidden, 50257);
  model.mlp = MlpKind::plain;
  model.positions = 2048;
  model.tied_embeddings = model.attention_bias = model.output_bias = model.mlp_bias = true;
  return model;
}

struct Experts {
  std::int64_t experts;
  std::int64_t topk;
  std::int64_t ffn;
  std::int64_t shared_ffn = 0;
  std::int64_t first_dense = 0;
};

Transformer with_experts(Transformer model, const Experts& experts) {
  model.experts = experts.experts;
  model.topk = experts.topk;
  model.moe_ffn = experts.ffn;
  model.shared_ffn = experts.shared_ffn;
  std::fill(model.layers.begin() + experts.first_dense, model.layers.end(), LayerKind::moe);
  return model;
}

Transformer qwen3(const char* name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                  std::int64_t expert_ffn, std::int64_t dense_ffn) {
  Transformer model = with_experts(llama(name, layers, hidden, heads, 4, dense_ffn, 151936),
                                   {.experts = 128, .topk = 8, .ffn = expert_ffn});
  model.head_dim = 128;
  return model;
}

/// DeepSeek-V3's attention and router; DeepSeek-V2 and others differ in sizes only.
Transformer deepseek(Transformer model, const Experts& experts, std::int64_t mtp_layers) {
  model = with_experts(std::move(model), experts);
  model.attention = AttentionKind::latent;
  model.head_dim = 0;
  model.q_lora_rank = 1536;
  model.kv_lora_rank = 512;
  model.qk_nope_head_dim = 128;
  model.qk_rope_head_dim = 64;
  model.v_head_dim = 128;
  model.mtp_layers = mtp_layers;
  model.router_bias = mtp_layers > 0;
  return model;
}

Transformer gpt_oss() {
  Transformer model = with_experts(llama("gpt-oss-120b", 36, 2880, 64, 8, 0, 201088),
                                   {.experts = 128, .topk = 4, .ffn = 2880});
  model.head_dim = 64;
  model.window = 128;
  model.windowed_layers = 18;
  model.attention_bias = model.output_bias = model.mlp_bias = model.router_bias = true;
  return model;
}

const std::vector<Transformer>& models() {
  static const std::vector<Transformer> kModels = {
      deepseek(llama("deepseek-v2", 60, 5120, 128, 128, 12288, 102400),
               {.experts = 160, .topk = 6, .ffn = 1536, .shared_ffn = 2 * 1536, .first_dense = 1}, 0),
      deepseek(llama("deepseek-v3", 61, 7168, 128, 128, 18432, 129280),
               {.experts = 256, .topk = 8, .ffn = 2048, .shared_ffn = 2048, .first_dense = 3}, 1),
      [] {
        Transformer model =
            deepseek(llama("kimi-k2", 61, 7168, 64, 64, 18432, 163840),
                     {.experts = 384, .topk = 8, .ffn = 2048, .shared_ffn = 2048, .first_dense = 1}, 0);
        model.router_bias = true;
        return model;
      }(),
      qwen3("qwen3-30b-a3b", 48, 2048, 32, 768, 6144),
      qwen3("qwen3-235b-a22b", 94, 4096, 64, 1536, 12288),
      with_experts(llama("mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000),
                   {.experts = 8, .topk = 2, .ffn = 14336}),
      with_experts(llama("mixtral-8x22b", 56, 6144, 48, 8, 16384, 32768),
                   {.experts = 8, .topk = 2, .ffn = 16384}),
      gpt_oss(),
      // Pangu Ultra MoE (Huawei, 2025, arXiv:2505.04519).
      deepseek(llama("pangu-ultra-moe-718b", 61, 7680, 128, 128, 18432, 153600),
               {.experts = 256, .topk = 8, .ffn = 2048, .shared_ffn = 2048, .first_dense = 3}, 1),
      // Language models are few-shot learners (Brown et al., 2020, arXiv:2005.14165).
      gpt("gpt3-175b", 96, 12288, 96),
      llama("llama2-13b", 40, 5120, 40, 40, 13824, 32000),
      llama("llama2-70b", 80, 8192, 64, 8, 28672, 32000),
      llama("llama3-8b", 32, 4096, 32, 8, 14336, 128256),
      llama("llama3-70b", 80, 8192, 64, 8, 28672, 128256),
      llama("llama3-405b", 126, 16384, 128, 8, 53248, 128256),
  };
  return kModels;
}

}  // namespace

const Transformer* find_builtin_model(std::string_view name) {
  const auto found = std::ranges::find(models(), name, &Transformer::name);
  return found == models().end() ? nullptr : &*found;
}

std::vector<std::string> builtin_model_names() {
  std::vector<std::string> names;
  for (const Transformer& model : models()) {
    names.push_back(model.name);
  }
  return names;
}

}  // namespace expedite::plan
