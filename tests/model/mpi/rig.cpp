#include "tests/model/mpi/rig.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

namespace expedite::model::tests {
namespace {

/// A tensor of type f32 or bf16 as floats.
std::vector<float> to_floats(ConstTensorView tensor) {
  std::vector<float> result;
  for (std::int64_t row = 0; row < tensor.rows(); ++row) {
    for (std::int64_t column = 0; column < tensor.columns(); ++column) {
      result.push_back(tensor.dtype() == DType::f32 ? tensor.row<float>(row)[column]
                                                    : static_cast<float>(tensor.row<bf16>(row)[column]));
    }
  }
  return result;
}

void fill(TensorView tensor, std::span<const double> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (tensor.dtype() == DType::f32) {
      tensor.as<float>()[i] = static_cast<float>(values[i]);
    } else {
      tensor.as<bf16>()[i] = bf16(static_cast<float>(values[i]));
    }
  }
}

}  // namespace

const comm::Communicator& job() {
  static const comm::Communicator kWorld = comm::Communicator::world();
  return kWorld;
}

const comm::ProcessGrid& grid_of(int expert_parallel_size) {
  static std::map<int, std::unique_ptr<comm::ProcessGrid>> grids;
  std::unique_ptr<comm::ProcessGrid>& grid = grids[expert_parallel_size];
  if (!grid) {
    grid = std::make_unique<comm::ProcessGrid>(job(), expert_parallel_size);
  }
  return *grid;
}

const comm::ProcessGrid& lone_grid() {
  static const comm::ProcessGrid kGrid(job().split(job().rank(), 0, "alone"), 1);
  return kGrid;
}

Rig::Rig(const ModelConfig& config, DType dtype, const comm::ProcessGrid& grid, State state,
         const schedule::EpPlan& plan, const schedule::Builder& builder)
    : grid_(grid),
      parameters_(config, dtype, expert_shard(config, grid_), state, pool_),
      engine_(parameters_, grid_, pool_,
              {.ep_plan = plan, .builder = &builder, .collective_timeout_s = 60.0}) {}

void Rig::set_weights(const reference::Parameters& weights) {
  for (const CheckpointTensor& tensor : parameters_.tensors()) {
    const std::vector<double>& values = weights.at(tensor.name);
    if (tensor.bias != nullptr) {
      std::copy(values.begin(), values.end(), tensor.bias->begin());
    }
    for (const TensorPart& part : tensor.parts) {
      if (part.parameter == nullptr) {
        continue;
      }
      std::vector<double> ordered;
      for (std::int64_t i = 0; i < part.elements(); ++i) {
        ordered.push_back(values[static_cast<std::size_t>(part.place(i / part.columns, i % part.columns))]);
      }
      const TensorView weight =
          parameters_.state() == State::training ? part.parameter->master : part.parameter->weight;
      fill(weight.reshape({weight.elements()}).slice(part.offset, part.elements()), ordered);
    }
  }
  parameters_.refresh_weights();
}

StepResult Rig::step(const TinyBatch& batch, const StepOptions& options, bool update) {
  const std::vector<MicroBatch> micro_batches = batch.on_rank(grid_.rank());
  return engine_.run({.micro_batches = batch.micro_batches(),
                      .update = update,
                      .batch_aux_loss = options.balance.aux_loss == AuxLoss::batch,
                      .tokens = batch.most_tokens()},
                     batch.input(micro_batches), options);
}

StepResult Rig::evaluate(const TinyBatch& batch) {
  const std::vector<MicroBatch> micro_batches = batch.on_rank(grid_.rank());
  return engine_.run(
      {.micro_batches = batch.micro_batches(), .training = false, .tokens = batch.most_tokens()},
      batch.input(micro_batches), {});
}

Rig::LayerResult Rig::run_layer(std::span<const double> input, std::span<const double> grad_output,
                                std::int64_t most_tokens) {
  const std::int64_t hidden = parameters_.config().hidden_size;
  const auto tokens = static_cast<std::int64_t>(input.size()) / hidden;
  const DType dtype = parameters_.dtype();
  const Buffer memory = pool_.allocate(4 * tokens * hidden * size_of(dtype), MemoryCategory::workspace);
  const TensorView rows = memory.view(dtype, {4 * tokens, hidden});
  const StepRunner::Boundary boundary = {.input = rows.slice(0, tokens),
                                         .output = rows.slice(tokens, tokens),
                                         .grad_output = rows.slice(2 * tokens, tokens),
                                         .grad_input = rows.slice(3 * tokens, tokens)};
  fill(rows.slice(0, tokens), input);
  fill(rows.slice(2 * tokens, tokens), grad_output);
  MicroBatch batch;
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens), 0);
  batch.append(ids, ids);
  engine_.run_moe_layer({.update = false, .tokens = most_tokens}, {std::span(&batch, 1), 0, 0, {0}}, {},
                        boundary);
  return {to_floats(boundary.output), to_floats(boundary.grad_input)};
}

Tensors Rig::gradients() {
  Tensors result;
  for (const CheckpointTensor& tensor : parameters_.tensors()) {
    for (const TensorPart& part : tensor.parts) {
      if (part.parameter == nullptr) {
        continue;
      }
      std::vector<float>& all = result[tensor.name];
      all.resize(static_cast<std::size_t>(tensor.shape.elements()));
      const float* values = part.parameter->gradient.as<float>() + part.offset;
      for (std::int64_t i = 0; i < part.elements(); ++i) {
        all[static_cast<std::size_t>(part.place(i / part.columns, i % part.columns))] = values[i];
      }
    }
  }
  return result;
}

std::vector<double> Rig::held_part(const std::string& name, std::vector<double> whole) {
  for (const CheckpointTensor& tensor : parameters_.tensors()) {
    for (const TensorPart& part : tensor.parts) {
      for (std::int64_t i = 0; tensor.name == name && part.parameter == nullptr && i < part.elements(); ++i) {
        whole[static_cast<std::size_t>(part.place(i / part.columns, i % part.columns))] = 0.0;
      }
    }
  }
  return whole;
}

Tensors Rig::gather(StateTensor which) {
  Tensors result;
  for (const CheckpointTensor& tensor : parameters_.tensors()) {
    if (tensor.bias != nullptr) {
      if (which == StateTensor::weight && grid_.rank() == 0) {
        result[tensor.name] = *tensor.bias;
      }
      continue;
    }
    const std::vector<std::byte> bytes = gather_tensor(tensor, which, DType::f32, grid_);
    if (grid_.rank() == 0) {
      std::vector<float>& values = result[tensor.name];
      values.resize(bytes.size() / sizeof(float));
      std::memcpy(values.data(), bytes.data(), bytes.size());
    }
  }
  return result;
}

Observer Observed::observer() {
  return [this](const std::string& name, int micro_batch, ConstTensorView value) {
    values_[{name, micro_batch}] = to_floats(value);
  };
}

double relative_error(std::span<const float> ours, std::span<const double> expected, double floor) {
  if (ours.size() != expected.size()) {
    return std::numeric_limits<double>::infinity();
  }
  double largest = floor;
  double error = 0.0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double difference = std::abs(static_cast<double>(ours[i]) - expected[i]);
    if (!std::isfinite(difference)) {
      return std::numeric_limits<double>::infinity();
    }
    largest = std::max(largest, std::abs(expected[i]));
    error = std::max(error, difference);
  }
  return error > 0.0 ? error / largest : 0.0;
}

std::vector<int> divisors(int n) {
  std::vector<int> result;
  for (int divisor = 1; divisor <= n; ++divisor) {
    if (n % divisor == 0) {
      result.push_back(divisor);
    }
  }
  return result;
}

}  // namespace expedite::model::tests
