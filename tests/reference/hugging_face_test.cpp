// The reference against the numbers of Hugging Face's own implementation (see tests/fixtures/hf).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "expedite/model/safetensors.h"
#include "tests/reference/model.h"

namespace expedite::reference {
namespace {

// Hugging Face computed in float32: the difference is its rounding, largest where a tensor's values are.
constexpr double kTolerance = 1e-5;

class HuggingFace : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string folder = std::string(EXPEDITE_FIXTURES "/hf/") + GetParam();
    config_ = model::read_model_config(folder + "/config.json");
    expected_ = std::make_unique<model::SafetensorsFile>(folder + "/expected.safetensors");
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

  void expect_near(const std::vector<double>& values, const std::string& name) const {
    const std::vector<double> expected = expected_->read_f64(name);
    ASSERT_EQ(values.size(), expected.size()) << name;
    double largest = 0.0;
    double error = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      error = std::max(error, std::abs(values[i] - expected[i]));
    }
    EXPECT_GT(largest, 0.0) << name;
    EXPECT_LE(error, kTolerance * std::min(1.0, largest)) << name;
  }

  model::ModelConfig config_;
  std::unique_ptr<model::SafetensorsFile> expected_;
  Result result_;
};

TEST_P(HuggingFace, AgreesForward) {
  std::size_t sparse_layers = 0;
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    expect_near(result_.hidden_states[layer].values, "hidden_states." + std::to_string(layer));
    const std::string router = "router_logits." + std::to_string(layer);
    EXPECT_EQ(expected_->contains(router), config_.sparse[layer]);
    if (config_.sparse[layer]) {
      expect_near(result_.router_logits[layer].values, router);
      ++sparse_layers;
    }
  }
  EXPECT_GT(sparse_layers, 0U);
  expect_near(result_.final_hidden_state.values, "final_hidden_state");
  expect_near(result_.logits.values, "logits");
  expect_near({result_.loss}, "loss");
  expect_near({result_.aux_loss}, "aux_loss");
}

TEST_P(HuggingFace, AgreesOnEveryGradient) {
  std::size_t compared = 0;
  for (const model::StoredTensor& tensor : expected_->tensors()) {
    if (tensor.name.starts_with("grad.")) {
      expect_near(result_.grads.at(tensor.name.substr(5)), tensor.name);
      ++compared;
    } else if (tensor.name.starts_with("grad_aux.")) {
      expect_near(result_.grads_aux.at(tensor.name.substr(9)), tensor.name);
    }
  }
  EXPECT_EQ(compared, result_.grads.size());
}

INSTANTIATE_TEST_SUITE_P(Fixtures, HuggingFace, testing::Values("qwen3_moe", "qwen3_moe_dense", "mixtral"));

}  // namespace
}  // namespace expedite::reference
