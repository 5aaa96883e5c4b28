#include "expedite/model/checkpoint_io.h"

#include <zlib.h>

#include <memory>
#include <set>
#include <span>

#include "expedite/comm/collectives.h"
#include "expedite/kernels/elementwise.h"

namespace expedite::model {
namespace {

std::vector<std::int64_t> dimensions(const Shape& shape) {
  std::vector<std::int64_t> result;
  result.reserve(Shape::kMaxRank);
  for (int i = 0; i < shape.rank(); ++i) {
    result.push_back(shape[i]);
  }
  return result;
}

/// The part of one of a parameter's tensors that a checkpoint tensor names.
TensorView part(const CheckpointTensor& tensor, StateTensor which) {
  if (tensor.bias != nullptr) {
    return TensorView(std::span(*tensor.bias));
  }
  const Parameter& parameter = *tensor.parameter;
  TensorView whole;
  switch (which) {
    case StateTensor::weight:
      whole = parameter.weight;
      break;
    case StateTensor::master:
      whole = parameter.master;
      break;
    case StateTensor::gradient:
      whole = parameter.gradient;
      break;
    case StateTensor::exp_avg:
      whole = parameter.exp_avg;
      break;
    case StateTensor::exp_avg_sq:
      whole = parameter.exp_avg_sq;
      break;
  }
  const std::int64_t elements = whole.elements();
  return whole.reshape({elements}).slice(tensor.offset, tensor.shape.elements()).reshape(tensor.shape);
}

/// Selection biases are part of the model, not of the optimizer's state.
bool belongs(const CheckpointTensor& tensor, StateTensor which) {
  return tensor.bias == nullptr || which == StateTensor::weight;
}

void require_fitting(const StoredTensor& stored, const CheckpointTensor& tensor,
                     const SafetensorsFolder& folder) {
  require(stored.shape == dimensions(tensor.shape),
          "{}: tensor '{}' has shape [{}] where the model's config.json asks for {}", folder.path().string(),
          tensor.name, fmt::join(stored.shape, ", "), to_string(tensor.shape));
}

/// "model.layers.46.…" names a layer behind the last, one of those for multi-token prediction.
bool of_prediction_layer(const std::string& name, const ModelConfig& config) {
  for (std::int64_t i = 0; i < config.prediction_layers; ++i) {
    if (name.starts_with(fmt::format("model.layers.{}.", config.layers + i))) {
      return true;
    }
  }
  return false;
}

StoredType stored_type_of(const CheckpointTensor& tensor, StateTensor which, const Parameters& parameters) {
  const bool f32 = which != StateTensor::weight || tensor.bias != nullptr;
  return f32 ? StoredType::f32 : stored_type(parameters.dtype());
}

void write_index(const ShardPlan& plan, const std::filesystem::path& folder, const FileWritten& written) {
  const std::string text = index_text(plan);
  const std::filesystem::path path = folder / kIndexFileName;
  PosixFile file = PosixFile::create(path);
  file.write(std::as_bytes(std::span(text)));
  file.sync();
  file.close();
  written(path, {.bytes = static_cast<std::int64_t>(text.size()),
                 .crc32 = static_cast<std::uint32_t>(
                     crc32_z(0, reinterpret_cast<const unsigned char*>(text.data()), text.size()))});
}

}  // namespace

std::vector<std::byte> gather_tensor(const CheckpointTensor& tensor, StateTensor which, DType dtype,
                                     const comm::ProcessGrid& grid) {
  // The owner's world rank in the first replica: expert-parallel groups are consecutive ranks from 0.
  const int owner = tensor.expert ? tensor.owner : 0;
  std::vector<std::byte> bytes;
  if (grid.rank() == owner || grid.rank() == 0) {
    bytes.resize(static_cast<std::size_t>(tensor.shape.elements() * size_of(dtype)));
  }
  if (grid.rank() == owner) {
    kernels::convert(part(tensor, which), TensorView(bytes.data(), dtype, tensor.shape));
    if (owner != 0) {
      comm::send_bytes(grid.world(), bytes, 0);
      bytes.clear();
    }
  } else if (grid.rank() == 0) {
    comm::receive_bytes(grid.world(), bytes, owner);
  }
  return bytes;
}

void check_weights(Parameters& parameters, const SafetensorsFolder& folder) {
  std::set<std::string> expected;
  for (const CheckpointTensor& tensor : parameters.tensors()) {
    expected.insert(tensor.name);
    require_fitting(folder.tensor(tensor.name), tensor, folder);
  }
  for (const std::string& name : folder.names()) {
    // Some checkpoints repeat a tied head, or keep rotary tables that are worked out from the configuration.
    const bool redundant = (parameters.config().tie_word_embeddings && name == "lm_head.weight") ||
                           name.ends_with("rotary_emb.inv_freq") ||
                           of_prediction_layer(name, parameters.config());
    require(
        expected.contains(name) || redundant,
        "{}: tensor '{}' is not part of the model that config.json describes: is it the right config.json?",
        folder.path().string(), name);
  }
}

void load_weights(Parameters& parameters, const SafetensorsFolder& folder) {
  check_weights(parameters, folder);
  for (const CheckpointTensor& tensor : parameters.tensors()) {
    if (tensor.parameter != nullptr || tensor.bias != nullptr) {
      const bool training = parameters.state() == State::training && tensor.bias == nullptr;
      folder.read(tensor.name, part(tensor, training ? StateTensor::master : StateTensor::weight));
    }
  }
  parameters.refresh_weights();
}

void load_tensors(Parameters& parameters, StateTensor which, const SafetensorsFolder& folder) {
  for (const CheckpointTensor& tensor : parameters.tensors()) {
    if (belongs(tensor, which)) {
      require_fitting(folder.tensor(tensor.name), tensor, folder);
      if (tensor.parameter != nullptr || tensor.bias != nullptr) {
        folder.read(tensor.name, part(tensor, which));
      }
    }
  }
  if (which == StateTensor::master) {
    parameters.refresh_weights();
  }
}

void save_tensors(Parameters& parameters, StateTensor which, const comm::ProcessGrid& grid,
                  const std::filesystem::path& folder, const FileWritten& written,
                  std::int64_t max_shard_bytes) {
  std::vector<StoredTensor> stored;
  std::vector<const CheckpointTensor*> tensors;
  for (const CheckpointTensor& tensor : parameters.tensors()) {
    if (belongs(tensor, which)) {
      stored.push_back({tensor.name, stored_type_of(tensor, which, parameters), dimensions(tensor.shape)});
      tensors.push_back(&tensor);
    }
  }
  const ShardPlan plan = plan_shards(stored, max_shard_bytes);
  const bool writes = grid.rank() == 0;
  std::size_t next = 0;
  for (const ShardPlan::Shard& shard : plan.shards) {
    const std::filesystem::path file = folder / shard.file;
    std::unique_ptr<SafetensorsWriter> writer;
    if (writes) {
      writer = std::make_unique<SafetensorsWriter>(file, shard.tensors);
    }
    for (const StoredTensor& tensor : shard.tensors) {
      const DType dtype = tensor.type == StoredType::f32 ? DType::f32 : DType::bf16;
      const std::vector<std::byte> bytes = gather_tensor(*tensors[next++], which, dtype, grid);
      if (writes) {
        writer->append(tensor.name, bytes);
      }
    }
    if (writes) {
      written(file, writer->finish());
    }
  }
  if (writes && plan.shards.size() > 1) {
    write_index(plan, folder, written);
  }
}

}  // namespace expedite::model
