// The shared expert against the reference in double precision, and its gradients against differences of its
// own outputs.
#include "expedite/model/shared_expert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tests/reference/shared_expert.h"

namespace expedite::model {
namespace {

ModelConfig config_of(std::int64_t hidden, std::int64_t ffn, bool gate) {
  return architecture::parse_model_config({{"model_type", gate ? "qwen2_moe" : "dots1"},
                                           {"vocab_size", 8},
                                           {"hidden_size", hidden},
                                           {"num_hidden_layers", 1},
                                           {"num_attention_heads", 1},
                                           {"num_key_value_heads", 1},
                                           {"head_dim", 2},
                                           {"num_experts", 2},
                                           {"n_routed_experts", 2},
                                           {"n_shared_experts", 1},
                                           {"num_experts_per_tok", 1},
                                           {"moe_intermediate_size", ffn},
                                           {"shared_expert_intermediate_size", ffn}},
                                          "test");
}

reference::Matrix doubles(const ConstTensorView& x) {
  reference::Matrix result(x.rows(), x.columns());
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    result.values[static_cast<std::size_t>(i)] =
        x.dtype() == DType::f32 ? static_cast<double>(x.as<float>()[i])
                                : static_cast<double>(static_cast<float>(x.as<bf16>()[i]));
  }
  return result;
}

/// A layer's shared expert with random weights, its input, and everything that is computed from them.
class Case {
 public:
  Case(std::int64_t tokens, std::int64_t hidden, std::int64_t ffn, bool gate, DType dtype)
      : tokens_(tokens),
        config_(config_of(hidden, ffn, gate)),
        dtype_(dtype),
        parameters_(config_, dtype, {.first_expert = {0, 2}, .ep_rank = 0}, State::gradients, pool_),
        storage_(pool_.allocate(measure(), MemoryCategory::activations)),
        arena_(storage_),
        kept(arena_, config_, tokens, dtype) {
    take(arena_);
    for (Parameter* parameter : parameters()) {
      fill(parameter->weight, 1.5 / std::sqrt(static_cast<double>(hidden)));
      fill(parameter->gradient, 1.0);  // gradients are added to
    }
    fill(normed, 1.0);
    fill(grad_output, 1.0);
  }

  SharedExpertWeights& weights() { return parameters_.layer(0).shared; }
  std::vector<Parameter*> parameters() {
    std::vector<Parameter*> all = {weights().gate_up, weights().down};
    if (weights().gate != nullptr) {
      all.push_back(weights().gate);
    }
    return all;
  }

  void forward() { forward(0, tokens_); }
  void forward(std::int64_t begin, std::int64_t count) {
    shared_expert_forward(weights(), normed, begin, count, kept, output);
  }
  void backward() {
    shared_expert_input_grad(weights(), kept, grad_output, grad_gate_up, grad_gate, grad_normed, pool_);
    shared_expert_weight_grad(weights(), normed, kept, grad_output, grad_gate_up, grad_gate, pool_);
  }

  void fill(const TensorView& x, double deviation) {
    std::normal_distribution<double> normal(0.0, deviation);
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const auto value = static_cast<float>(normal(generator_));
      if (x.dtype() == DType::f32) {
        x.as<float>()[i] = value;
      } else {
        x.as<bf16>()[i] = bf16(value);
      }
    }
  }

 private:
  [[nodiscard]] std::int64_t measure() {
    Arena arena;
    const SharedActivations activations(arena, config_, tokens_, dtype_);
    take(arena);
    return arena.used();
  }
  void take(Arena& arena) {
    const std::int64_t hidden = config_.hidden_size;
    normed = arena.take(dtype_, {tokens_, hidden});
    output = arena.take(dtype_, {tokens_, hidden});
    grad_output = arena.take(dtype_, {tokens_, hidden});
    grad_normed = arena.take(dtype_, {tokens_, hidden});
    grad_gate_up = arena.take(dtype_, {tokens_, 2 * config_.shared_expert_intermediate_size});
    if (config_.shared_expert_gate) {
      grad_gate = arena.take(DType::f32, {tokens_});
    }
  }

  std::int64_t tokens_;
  ModelConfig config_;
  DType dtype_;
  MemoryPool pool_;
  Parameters parameters_;
  Buffer storage_;
  Arena arena_;
  std::mt19937 generator_{7};

 public:
  TensorView normed, output, grad_output, grad_normed, grad_gate_up, grad_gate;
  SharedActivations kept;
};

void expect_near(const reference::Matrix& values, const reference::Matrix& expected, double tolerance,
                 const char* what) {
  ASSERT_EQ(values.values.size(), expected.values.size()) << what;
  double largest = 0.0;
  double error = 0.0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    largest = std::max(largest, std::abs(expected.values[i]));
    error = std::max(error, std::abs(values.values[i] - expected.values[i]));
  }
  EXPECT_LE(error, tolerance * largest) << what;
}

/// The reference's weights, with gate and up projections apart, and their gradients.
struct Reference {
  explicit Reference(Case& problem)
      : gate_up(doubles(problem.weights().gate_up->weight)),
        down(doubles(problem.weights().down->weight)),
        grad_gate_up(doubles(problem.weights().gate_up->gradient)),
        grad_down(doubles(problem.weights().down->gradient)) {
    if (problem.weights().gate != nullptr) {
      gate = doubles(problem.weights().gate->weight);
      grad_gate = doubles(problem.weights().gate->gradient);
    }
  }
  reference::SharedExpertWeights weights() const {
    const std::span<const double> both = gate_up.values;
    const std::size_t half = both.size() / 2;
    return {{both.first(half), both.subspan(half), down.values}, gate.values};
  }
  reference::SharedExpertGradients gradients() {
    const std::span<double> both = grad_gate_up.values;
    const std::size_t half = both.size() / 2;
    return {{both.first(half), both.subspan(half), grad_down.values}, grad_gate.values};
  }

  reference::Matrix gate_up, down, gate, grad_gate_up, grad_down, grad_gate;
};

void check_against_reference(std::int64_t tokens, std::int64_t hidden, std::int64_t ffn, bool gate,
                             DType dtype) {
  SCOPED_TRACE(fmt::format("T {}, H {}, Fs {}, gate {}, {}", tokens, hidden, ffn, gate, name_of(dtype)));
  // bf16: every tensor on the way is rounded, an error of up to 2^-9 of its value each; six of them.
  const double tolerance = dtype == DType::f32 ? 1e-5 : 6 * 0x1p-9;
  Case problem(tokens, hidden, ffn, gate, dtype);
  Reference expected(problem);
  const reference::Matrix x = doubles(problem.normed);
  problem.forward();
  expect_near(doubles(problem.output), reference::shared_expert(x, expected.weights()), tolerance, "output");
  problem.backward();
  const reference::Matrix dx = reference::shared_expert_backward(doubles(problem.grad_output), x,
                                                                 expected.weights(), expected.gradients());
  expect_near(doubles(problem.grad_normed), dx, tolerance, "gradient of the input");
  expect_near(doubles(problem.weights().gate_up->gradient), expected.grad_gate_up, tolerance, "gate and up");
  expect_near(doubles(problem.weights().down->gradient), expected.grad_down, tolerance, "down");
  if (gate) {
    expect_near(doubles(problem.weights().gate->gradient), expected.grad_gate, tolerance, "gate");
  }
}

TEST(SharedExpert, AgreesWithTheReference) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool gate : {true, false}) {
      check_against_reference(0, 8, 6, gate, dtype);
      check_against_reference(1, 1, 1, gate, dtype);
      check_against_reference(1, 24, 10, gate, dtype);
      check_against_reference(37, 40, 17, gate, dtype);
      check_against_reference(130, 64, 96, gate, dtype);
    }
  }
}

/// Of sum(output * grad_output), along a random direction of one tensor.
double slope(Case& problem, const TensorView& moved, const std::vector<float>& direction) {
  constexpr float kStep = 1e-2F;
  const std::vector<float> kept(moved.as<float>(), moved.as<float>() + moved.elements());
  const auto loss = [&](float step) {
    for (std::size_t i = 0; i < kept.size(); ++i) {
      moved.as<float>()[i] = kept[i] + step * direction[i];
    }
    problem.forward();
    return reference::dot(doubles(problem.output).values, doubles(problem.grad_output).values);
  };
  const double difference = (loss(kStep) - loss(-kStep)) / (2.0 * static_cast<double>(kStep));
  std::copy(kept.begin(), kept.end(), moved.as<float>());
  return difference;
}

void expect_slope(Case& problem, const TensorView& moved, const reference::Matrix& gradient) {
  std::mt19937 generator(3);
  std::vector<float> direction;
  double expected = 0.0;
  double scale = 0.0;
  for (const double value : gradient.values) {
    direction.push_back(generator() % 2 == 0 ? 1.0F : -1.0F);
    expected += static_cast<double>(direction.back()) * value;
    scale += value * value;
  }
  EXPECT_GT(scale, 0.0);
  EXPECT_NEAR(slope(problem, moved, direction), expected, 3e-3 * std::sqrt(scale));
}

TEST(SharedExpert, GradientsAgreeWithFiniteDifferences) {
  for (const bool gate : {true, false}) {
    Case problem(9, 12, 10, gate, DType::f32);
    for (Parameter* parameter : problem.parameters()) {
      std::fill_n(parameter->gradient.as<float>(), parameter->gradient.elements(), 0.0F);
    }
    problem.forward();
    problem.backward();
    expect_slope(problem, problem.normed, doubles(problem.grad_normed));
    for (Parameter* parameter : problem.parameters()) {
      expect_slope(problem, parameter->weight, doubles(parameter->gradient));
    }
  }
}

std::vector<std::byte> bytes_of(const ConstTensorView& x) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(x.bytes()));
  std::memcpy(bytes.data(), x.data(), bytes.size());
  return bytes;
}

TEST(SharedExpert, SlicesDoNotChangeBits) {
  constexpr std::int64_t kTokens = 67;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool gate : {true, false}) {
      Case whole(kTokens, 48, 40, gate, dtype);
      Case parts(kTokens, 48, 40, gate, dtype);
      whole.forward();
      for (std::int64_t begin = 0, count = 0; begin < kTokens; begin += count, count += 3) {
        parts.forward(begin, std::min(count, kTokens - begin));
      }
      EXPECT_EQ(bytes_of(parts.output), bytes_of(whole.output));
      EXPECT_EQ(bytes_of(parts.kept.gate_up), bytes_of(whole.kept.gate_up));
      EXPECT_EQ(bytes_of(parts.kept.activated), bytes_of(whole.kept.activated));
      if (gate) {
        EXPECT_EQ(bytes_of(parts.kept.gate), bytes_of(whole.kept.gate));
      }
    }
  }
}

TEST(SharedExpert, ExtremeGatesStayFinite) {
  Case problem(2, 4, 3, true, DType::f32);
  std::fill_n(problem.normed.as<float>(), 4, 1e4F);
  std::fill_n(problem.normed.as<float>() + 4, 4, -1e4F);
  std::fill_n(problem.weights().gate->weight.as<float>(), 4, 1.0F);
  std::fill_n(problem.weights().gate_up->weight.as<float>(), 24, 1e-4F);
  problem.forward();
  problem.backward();
  EXPECT_EQ(problem.kept.gate.as<float>()[0], 1.0F);
  EXPECT_EQ(problem.kept.gate.as<float>()[1], 0.0F);
  for (const double value : doubles(problem.grad_normed).values) {
    EXPECT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace expedite::model
