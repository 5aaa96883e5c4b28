// The reference against the numbers of Hugging Face's own implementation (see tests/fixtures/hf).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include "expedite/hf/safetensors.h"
#include "tests/reference/model.h"

namespace expedite::reference {
namespace {

const std::string kFolders = EXPEDITE_FIXTURES "/hf/";

constexpr std::array kFixtures = {"deepseek_v2", "deepseek_v3", "dots1",           "glm4_moe",
                                  "gpt_oss",     "llama",       "mixtral",         "olmoe",
                                  "qwen2",       "qwen3_moe",   "qwen3_moe_dense", "qwen3_moe_rope"};

// Hugging Face computed in float32: the difference is its rounding, largest where a tensor's values are.
constexpr double kTolerance = 3e-6;          // of the largest value
constexpr double kGradientTolerance = 1e-5;  // of the largest gradient of a parameter

class HuggingFace : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string folder = kFolders + GetParam();
    config_ = architecture::read_model_config(folder + "/config.json");
    expected_ = std::make_unique<hf::SafetensorsFile>(folder + "/expected.safetensors");
    result_ = run(config_, load_parameters(config_, folder), sequences());
  }

  std::vector<std::vector<int>> sequences() const {
    const std::vector<std::int64_t> ids = expected_->read_i64("input_ids");
    const std::int64_t length = expected_->tensor("input_ids").columns();
    std::vector<std::vector<int>> result;
    for (std::int64_t row = 0; row < expected_->tensor("input_ids").rows(); ++row) {
      result.emplace_back(ids.begin() + row * length, ids.begin() + (row + 1) * length);
    }
    return result;
  }

  // DeepSeek's families, and those after them, balance by bias instead; dense ones have nothing to balance.
  bool has_aux_loss() const {
    return config_.count(architecture::LayerKind::moe) > 0 && !config_.expert_bias &&
           config_.family != architecture::Family::deepseek_v2;
  }

  void expect_near(const std::vector<double>& values, const std::string& name,
                   double tolerance = kTolerance) const {
    const std::vector<double> expected = expected_->read_f64(name);
    ASSERT_EQ(values.size(), expected.size()) << name;
    double largest = 0.0;
    double error = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      error = std::max(error, std::abs(values[i] - expected[i]));
    }
    EXPECT_GT(largest, 0.0) << name;
    EXPECT_LE(error, tolerance * largest) << name;
  }

  ModelConfig config_;
  std::unique_ptr<hf::SafetensorsFile> expected_;
  Result result_;
};

TEST_P(HuggingFace, AgreesForward) {
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    expect_near(result_.hidden_states[layer].values, "hidden_states." + std::to_string(layer));
    const std::string router = "router_logits." + std::to_string(layer);
    EXPECT_EQ(expected_->contains(router), config_.sparse[layer]);
    if (config_.sparse[layer]) {
      expect_near(result_.router_logits[layer].values, router);
    }
  }
  expect_near(result_.final_hidden_state.values, "final_hidden_state");
  expect_near(result_.logits.values, "logits");
  expect_near({result_.loss}, "loss");
  if (has_aux_loss()) {
    expect_near({result_.aux_loss}, "aux_loss");
  }
}

TEST_P(HuggingFace, AgreesOnEveryGradient) {
  std::size_t compared = 0;
  std::size_t compared_aux = 0;
  for (const hf::StoredTensor& tensor : expected_->tensors()) {
    if (tensor.name.starts_with("grad.")) {
      expect_near(result_.grads.at(tensor.name.substr(5)), tensor.name, kGradientTolerance);
      ++compared;
    } else if (tensor.name.starts_with("grad_aux.")) {
      expect_near(result_.grads_aux.at(tensor.name.substr(9)), tensor.name, kGradientTolerance);
      ++compared_aux;
    }
  }
  EXPECT_EQ(compared, result_.grads.size());
  const std::int64_t routers = has_aux_loss() ? config_.count(architecture::LayerKind::moe) : 0;
  EXPECT_EQ(compared_aux, static_cast<std::size_t>(config_.router_bias ? 2 * routers : routers));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, HuggingFace, testing::ValuesIn(kFixtures),
                         [](const auto& param_info) { return std::string(param_info.param); });

TEST(HuggingFaceFixtures, AreAllCompared) {
  std::set<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(kFolders)) {
    folders.insert(entry.path().filename().string());
  }
  EXPECT_EQ(folders, std::set<std::string>(kFixtures.begin(), kFixtures.end()));
}

}  // namespace
}  // namespace expedite::reference
