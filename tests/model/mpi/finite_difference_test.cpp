// Gradients of the whole model against differences of its own loss, for parameters of every kind: it holds
// even where the reference and the model would share a mistake.
#include <gtest/gtest.h>

#include <cmath>

#include "expedite/comm/collectives.h"
#include "expedite/hf/names.h"
#include "tests/model/mpi/rig.h"

namespace expedite::model::tests {
namespace {

// fp32 rounds the loss to about 1e-7 of itself, which a step of 4e-3 in the weight turns into an error of the
// slope of about 1e-7 * 3 / 8e-3 = 4e-5; the third derivative adds step^2.
constexpr double kStep = 4e-3;

/// Element `index` of the tensor, on whatever rank holds it, moved by `change`.
void nudge(Rig& rig, const std::string& name, std::int64_t index, double change) {
  for (const CheckpointTensor& tensor : rig.parameters().tensors()) {
    for (const TensorPart& part : tensor.parts) {
      for (std::int64_t i = 0; tensor.name == name && part.parameter != nullptr && i < part.elements(); ++i) {
        if (part.place(i / part.columns, i % part.columns) == index) {
          part.parameter->weight.as<float>()[part.offset + i] += static_cast<float>(change);
        }
      }
    }
  }
}

TEST(ModelFiniteDifference, AgreesWithAGradientOfEveryKind) {
  const comm::Communicator& world = job();
  Dice dice(11);
  const ModelConfig config =
      tiny_config({{"num_hidden_layers", 3}, {"mlp_only_layers", {1}}, {"attention_bias", true}});
  const Problem problem = draw_problem(dice, config, 2, world.size(), 0.05, false);
  Rig rig(config, DType::f32, grid_of(world.size()), State::gradients);
  rig.set_weights(problem.weights);
  rig.step(problem.batch, {}, false);
  Tensors gradients = rig.gather(StateTensor::gradient);
  double largest_slope = 0.0;
  for (const hf::ParameterSpec& spec : hf::parameters(config)) {
    if (!spec.trained || spec.layer == 2 || spec.expert > 1) {
      continue;  // of the same kind as one that is checked
    }
    // The steepest element, as rank 0 sees it.
    std::int64_t index = 0;
    if (world.rank() == 0) {
      const std::vector<float>& values = gradients.at(spec.name);
      for (std::size_t i = 1; i < values.size(); ++i) {
        if (std::abs(values[i]) > std::abs(values[static_cast<std::size_t>(index)])) {
          index = static_cast<std::int64_t>(i);
        }
      }
    }
    comm::broadcast(world, std::span(&index, 1), 0);
    nudge(rig, spec.name, index, kStep);
    const double above = rig.evaluate(problem.batch).loss;
    nudge(rig, spec.name, index, -2 * kStep);
    const double below = rig.evaluate(problem.batch).loss;
    nudge(rig, spec.name, index, kStep);
    if (world.rank() == 0) {
      const double slope = (above - below) / (2 * kStep);
      const double gradient = static_cast<double>(gradients.at(spec.name)[static_cast<std::size_t>(index)]);
      EXPECT_NEAR(gradient, slope, 2e-4 + 1e-2 * std::abs(slope)) << spec.name << "[" << index << "]";
      largest_slope = std::max(largest_slope, std::abs(slope));
    }
  }
  EXPECT_TRUE(world.rank() != 0 || largest_slope > 0.05);
}

}  // namespace
}  // namespace expedite::model::tests
