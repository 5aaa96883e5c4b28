// What is said of weights that do not fit the model.
#include "expedite/model/checkpoint_io.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "expedite/hf/names.h"
#include "tests/error_text.h"
#include "tests/temporary_folder.h"

namespace expedite::model {
namespace {

ModelConfig config(bool tied) {
  return architecture::parse_model_config({{"model_type", "qwen3_moe"},
                                           {"vocab_size", 7},
                                           {"hidden_size", 6},
                                           {"num_hidden_layers", 1},
                                           {"num_attention_heads", 2},
                                           {"num_key_value_heads", 1},
                                           {"head_dim", 4},
                                           {"num_experts", 3},
                                           {"num_experts_per_tok", 2},
                                           {"moe_intermediate_size", 5},
                                           {"tie_word_embeddings", tied}},
                                          "test");
}

/// Loads weights from a file of all tensors, after `change` has had its way with them: the error, if any.
/// This is the first of two ranks, which holds experts 0 and 1.
std::string load_error(const std::function<void(std::vector<hf::StoredTensor>&)>& change, bool tied = false) {
  const TemporaryFolder folder;
  std::vector<hf::StoredTensor> tensors;
  for (const hf::ParameterSpec& spec : hf::parameters(config(tied))) {
    tensors.push_back({spec.name, hf::StoredType::f32, spec.shape});
  }
  change(tensors);
  hf::SafetensorsWriter writer(folder / "model.safetensors", tensors);
  for (const hf::StoredTensor& tensor : tensors) {
    writer.append(tensor.name, std::vector<std::byte>(static_cast<std::size_t>(tensor.bytes())));
  }
  writer.finish();
  MemoryPool pool;
  Parameters weights(config(tied), DType::f32, {.first_expert = {0, 2, 3}, .ep_rank = 0}, State::weights,
                     pool);
  return error_text([&] { load_weights(weights, hf::SafetensorsFolder(folder.path())); });
}

auto find(std::vector<hf::StoredTensor>& tensors, const std::string& name) {
  return std::find_if(tensors.begin(), tensors.end(),
                      [&](const hf::StoredTensor& tensor) { return tensor.name == name; });
}

TEST(LoadWeights, TakesWhatFits) {
  EXPECT_EQ(load_error([](auto&) {}), "no error");
  EXPECT_EQ(load_error([](auto&) {}, true), "no error");
}

TEST(LoadWeights, NamesAMissingTensor) {
  // Also one of another rank's expert: all ranks fail, or none.
  for (const char* name : {"model.norm.weight", "model.layers.0.mlp.experts.0.up_proj.weight",
                           "model.layers.0.mlp.experts.2.down_proj.weight"}) {
    EXPECT_TRUE(mentions(load_error([&](auto& tensors) { tensors.erase(find(tensors, name)); }), {name}));
  }
}

TEST(LoadWeights, NamesATensorOfAnotherShape) {
  for (const char* name :
       {"lm_head.weight", "model.layers.0.self_attn.q_norm.weight", "model.layers.0.mlp.gate.weight",
        "model.layers.0.mlp.experts.2.gate_proj.weight"}) {
    const std::string error = load_error([&](auto& tensors) { find(tensors, name)->shape.back() = 9; });
    EXPECT_TRUE(mentions(error, {name, "9]", "config.json"}));
  }
  // As many elements, otherwise arranged.
  const std::string error = load_error([](auto& tensors) {
    auto& shape = find(tensors, "model.layers.0.mlp.experts.1.up_proj.weight")->shape;
    std::reverse(shape.begin(), shape.end());
  });
  EXPECT_TRUE(mentions(error, {"model.layers.0.mlp.experts.1.up_proj.weight", "[6, 5]", "[5, 6]"}));
}

TEST(LoadWeights, NamesATensorThatIsNotPartOfTheModel) {
  for (const char* name : {"model.layers.1.mlp.gate.weight", "model.layers.0.mlp.experts.3.up_proj.weight",
                           "model.layers.0.self_attn.q_proj.bias"}) {
    const std::string error = load_error([&](auto& tensors) {
      tensors.push_back({name, hf::StoredType::f32, {2, 2}});
    });
    EXPECT_TRUE(mentions(error, {name, "config.json"}));
  }
}

TEST(LoadWeights, PassesOverWhatTheConfigurationAlreadySays) {
  EXPECT_EQ(
      load_error(
          [](auto& tensors) {
            tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", hf::StoredType::f32, {2}});
            tensors.push_back({"lm_head.weight", hf::StoredType::f32, {7, 6}});
          },
          true),
      "no error");
}

TEST(LoadWeights, PassesOverPredictionLayers) {
  const auto error = [](std::int64_t prediction_layers, const char* extra) {
    const TemporaryFolder folder;
    const ModelConfig glm =
        architecture::parse_model_config({{"model_type", "glm4_moe"},
                                          {"vocab_size", 7},
                                          {"hidden_size", 6},
                                          {"num_hidden_layers", 1},
                                          {"num_attention_heads", 1},
                                          {"num_key_value_heads", 1},
                                          {"head_dim", 4},
                                          {"intermediate_size", 3},
                                          {"num_nextn_predict_layers", prediction_layers}},
                                         "test");
    std::vector<hf::StoredTensor> tensors;
    for (const hf::ParameterSpec& spec : hf::parameters(glm)) {
      tensors.push_back({spec.name, hf::StoredType::f32, spec.shape});
    }
    tensors.push_back({extra, hf::StoredType::f32, {2}});
    hf::SafetensorsWriter writer(folder / "model.safetensors", tensors);
    for (const hf::StoredTensor& tensor : tensors) {
      writer.append(tensor.name, std::vector<std::byte>(static_cast<std::size_t>(tensor.bytes())));
    }
    writer.finish();
    MemoryPool pool;
    Parameters weights(glm, DType::f32, {.first_expert = {0, 128}, .ep_rank = 0}, State::weights, pool);
    return error_text([&] { load_weights(weights, hf::SafetensorsFolder(folder.path())); });
  };
  EXPECT_EQ(error(1, "model.layers.1.eh_proj.weight"), "no error");
  EXPECT_TRUE(mentions(error(0, "model.layers.1.eh_proj.weight"), {"model.layers.1.eh_proj.weight"}));
  EXPECT_TRUE(mentions(error(1, "model.layers.2.eh_proj.weight"), {"model.layers.2.eh_proj.weight"}));
  EXPECT_TRUE(mentions(error(1, "model.layers.0.eh_proj.weight"), {"model.layers.0.eh_proj.weight"}));
}

TEST(LoadWeights, RefusesIntegers) {
  const std::string error =
      load_error([](auto& tensors) { find(tensors, "model.norm.weight")->type = hf::StoredType::i32; });
  EXPECT_TRUE(mentions(error, {"model.norm.weight", "I32"}));
}

}  // namespace
}  // namespace expedite::model
